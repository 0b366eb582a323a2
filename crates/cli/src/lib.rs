//! The `anabranch` command as a library, so that tests and fuzzers reach its parts.
//!
//! **Purpose.** What people touch: options, files, the live view, exit statuses. The work is done by
//! `anabranch`, whose loops join machines, sockets and disks.
//!
//! **Non-goals.** No protocol and no decision lives here (`mmtp`, `algo`). This is no stable API: the stable
//! interface is the command line, its exit status and its JSON.
//!
//! **Map.**
//! * [`args`]: the commands and most options; [`man`]: pages and completions of them; [`usage`]: what is
//!   wrong with a command line; [`exit`]: exit status; [`stdout`], and [`json`]: what programs read there.
//! * [`serve`]: the source.
//! * [`get`]: options to a request of the library, which does the work; [`view`]: what the user sees;
//!   [`wording`]: the library's messages with the names of options.
//! * [`network_options`]: where this machine is in a publish/subscribe network.
//! * [`mirror_list`]: hashes and mirrors of a file, written and shown.
//! * [`signals`]: Ctrl-C to a stop.
//! * [`demo`]: a real transfer on this machine alone; [`soak`]: in random worlds.
//! * [`lab_command`]: experiments from scenario files; [`kernel_command`]: congestion control inside Linux.
//! * [`proxy_command`]: every program on several links; [`net_command`]: networks, the paths in them, and
//!   whole domains on one machine; [`member_command`]: those who serve others in a publish/subscribe network.
//! * `metrics`: what a program tells Prometheus; `holder`: the process that keeps laboratories and domains
//!   up.

// Both panic where nobody takes what they print: `stdout` and `view::say` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod demo;
mod descriptors;
pub mod exit;
pub mod get;
mod hash_line;
#[cfg(target_os = "linux")]
mod holder;
pub mod json;
pub mod kernel_command;
pub mod lab_command;
pub mod man;
pub mod member_command;
mod metrics;
pub mod mirror_list;
pub mod net_command;
pub mod network_options;
mod new_file;
pub mod proxy_command;
pub mod serve;
pub mod signals;
pub mod soak;
pub mod stdout;
mod toml_name;
pub mod usage;
pub mod view;
pub mod wording;

pub use anabranch::{filenames as names, target};
