//! Graphs, filters and forwarding, from outside.

mod random_graphs;

mod filters;
mod forwarding;
mod oracle;
