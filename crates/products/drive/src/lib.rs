//! Drives real programs through many settings.
//!
//! **Purpose.** Answers "what does a second link do for this program" by repeatable nights of tests: profiles
//! (curl, git, a video, a call, any command) run on a phone with two radios, by each transport, over each
//! network of a plan, in an order that a seed decides. docs/drive.md is the page for users.
//!
//! **Non-goals.** It emulates no links (the crate `emulator` does), makes no hosts (`lab` does) and reads no
//! packets (`trace` does). It drives no phone of glass.
//!
//! **Data flow.**
//!
//! ```text
//! TOML ─ Plan ─ Schedule ─▶ Test ─ Runner ─▶ TestResult ─ Journal ─▶ results.jsonl
//!                                   hosts, programs,        │
//!                                   watchdog, captures      └─ Tally ─▶ page, JSON
//! ```
//!
//! **Refused.** A plan that makes no sense ([`plan::PlanError`]), a directory with the results of another
//! plan ([`results::Journal::open`]). Whatever goes wrong in a test is the result of that test.
//!
//! **Map.**
//! * [`plan`], [`network`], [`profile`], [`setting`], [`compare`]: the plan. [`schedule`]: its tests.
//! * [`results`]: a test's result and the file of all. [`tally`]: sums. [`page`]: the page, with [`cdf`]'s
//!   figures.
//! * `runner`: a test (Linux only). [`facts`]: what its captures tell; [`output`]: what its program printed.
//! * [`origin`]: the server, with its [`sites`]. [`client`]: chat, video and call.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cdf;
pub mod client;
pub mod compare;
pub mod facts;
pub mod network;
pub mod origin;
pub mod output;
pub mod page;
pub mod plan;
pub mod profile;
pub mod results;
#[cfg(target_os = "linux")]
pub mod runner;
pub mod schedule;
pub mod setting;
pub mod sites;
pub mod tally;
