//! Captures of the kernel with values that other tools confirm, and segments made by the tests.

mod anonymise;
mod both_ends;
mod damage;
mod formats;
mod kernel;
mod live;
mod page;
mod study;
mod transfers;
mod wire;
