//! The laboratory's worlds and tables, from outside.

mod background;
mod bbr;
mod chaos;
mod domain;
mod fairness;
mod groups;
mod scenario;
mod simulation;
