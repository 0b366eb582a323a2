//! Tests the laboratory's worlds and tables through their public interface.

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
mod studies;
mod tcp;
mod wifi;
#[path = "../../examples/your_controller.rs"]
mod your_controller;
