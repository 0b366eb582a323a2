//! The laboratory's worlds and tables, from outside.

mod arrivals;
mod background;
mod bbr;
mod chaos;
mod domain;
mod fairness;
mod groups;
mod own_controllers;
mod scenario;
mod simulation;
#[path = "../../examples/your_controller.rs"]
mod your_controller;
