//! The `anabranch` command as a library, so that tests and fuzzers reach its parts.
//!
//! **Purpose.** What people touch: options, files, the live view, exit statuses. The work is done by
//! `anabranch`, whose loops join machines, sockets and disks.
//!
//! **Non-goals.** No protocol and no decision lives here (`mmtp`, `algo`). This is no stable API: the stable
//! interface is the command line, its exit status and its JSON.
//!
//! **Map.**
//! * [`programs`]: which command is which program's; [`dispatch`]: how each of them begins and ends.
//! * [`args`]: the commands and most options; [`man`]: pages and completions of them; [`usage`]: what is
//!   wrong with a command line; [`exit`]: exit status; [`stdout`], and [`json`]: what programs read there.
//! * [`serve`]: the source.
//! * [`get`]: options to a request of the library, which does the work; [`view`]: what the user sees;
//!   [`hints`]: the library's messages with the names of options.
//! * [`network_options`]: where this machine is in a publish/subscribe network.
//! * [`mirror_list`]: hashes and mirrors of a file, written and shown.
//! * [`signals`]: Ctrl-C to a stop.
//! * [`demo`]: a real transfer on this machine alone.
//! * `anabranch-lab`: `lab_command`, experiments from scenario files, and `soak`, all of it in random worlds.
//! * `anabranch-kernel`: `kernel_command`, congestion control inside Linux.
//! * `anabranch-proxy`: `proxy_command`, every program on several links.
//! * `anabranch-net`: `net_command`, networks, the paths in them, and whole domains on one machine;
//!   `member_command`, those who serve others in a publish/subscribe network.
//! * `anabranch-trace`: `trace_command`, captures explained.
//! * `metrics`: what a program tells Prometheus; `holder`: the process that keeps laboratories and domains
//!   up.

// Both panic where nobody takes what they print: `stdout` and `view::say` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod demo;
#[cfg(any(feature = "network", feature = "proxy"))]
mod descriptors;
pub mod dispatch;
pub mod exit;
pub mod get;
mod hash_line;
pub mod hints;
#[cfg(all(target_os = "linux", any(feature = "lab", feature = "network")))]
mod holder;
pub mod json;
#[cfg(feature = "uplinks")]
pub mod kernel_command;
#[cfg(feature = "lab")]
pub mod lab_command;
pub mod man;
#[cfg(feature = "network")]
pub mod member_command;
#[cfg(any(feature = "network", feature = "uplinks"))]
mod metrics;
pub mod mirror_list;
#[cfg(feature = "network")]
pub mod net_command;
pub mod network_options;
#[cfg(any(feature = "lab", feature = "network"))]
mod new_file;
pub mod programs;
#[cfg(feature = "proxy")]
pub mod proxy_command;
pub mod serve;
pub mod signals;
#[cfg(feature = "lab")]
pub mod soak;
pub mod stdout;
#[cfg(any(feature = "lab", feature = "network"))]
mod toml_name;
#[cfg(feature = "trace")]
pub mod trace_command;
pub mod usage;
pub mod view;

pub use anabranch::text as names;
