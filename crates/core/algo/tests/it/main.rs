//! The controllers and what they are made of, from outside.

mod bbr;
mod controllers;
mod formulas;
mod vectors;
