//! Tests of the controllers and of their parts, from outside.

mod bbr;
mod controllers;
mod formulas;
mod vectors;
