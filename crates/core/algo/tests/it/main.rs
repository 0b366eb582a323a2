//! The controllers and what they are made of, from outside.

mod controllers;
mod formulas;
mod vectors;
