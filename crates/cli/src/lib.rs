//! The `anabranch` command as a library, so that tests and fuzzers can use its parts.
//!
//! **Purpose.** The part that people use: options, files, the live view, exit statuses. The crate `anabranch`
//! does the work: its loops connect machines, sockets and disks.
//!
//! **Non-goals.** No protocols and no decisions (they are in `mmtp` and `algo`). This is no stable API: the
//! stable interface is the command line, its exit status and its JSON.
//!
//! **Map.**
//! * [`programs`]: which program has which command; [`dispatch`]: the beginning and the end of each program.
//! * [`args`]: the commands and most options; [`man`]: manual pages and completions; [`usage`]: errors of the
//!   command line; [`exit`]: exit statuses; [`stdout`] and [`json`]: output for programs.
//! * [`serve`]: the source.
//! * [`get`]: makes a request of the library from options; [`view`]: what the user sees; [`hints`]: the
//!   library's messages with the names of options.
//! * [`network_options`]: where this machine is in a publish/subscribe network.
//! * [`mirror_list`]: writes and shows the hashes and mirrors of a file.
//! * [`signals`]: turns Ctrl-C into a stop.
//! * [`demo`]: a real transfer on this machine alone.
//! * `anabranch-cache`: `cache_command`, what updaters fetch, verified and kept.
//! * `anabranch-daemon`: `daemon_command`, a queue of downloads.
//! * `anabranch-minicache`: `minicache_command`, objects by their hashes from one file.
//! * `anabranch-lab`: `lab_command`, experiments from scenario files; `soak`, everything in random worlds.
//! * `anabranch-kernel`: `kernel_command`, congestion control inside Linux.
//! * `anabranch-op`: `op_command`, packet functions that move.
//! * `anabranch-proxy`: `proxy_command`, every program on several links.
//! * `anabranch-tcp`: `tcp_command`, Multipath TCP of this process.
//! * `anabranch-net`: `net_command`, networks, the paths in them, and whole domains on one machine;
//!   `member_command`, the servers of a publish/subscribe network.
//! * `anabranch-trace`: `trace_command`, statistics of captures.
//! * `anabranch-uplinks`: `uplinks_command`, several uplinks kept right.
//! * `anabranch-vm`: `vm_command`, running machines that move.
//! * `metrics`: metrics for Prometheus; `holder`: the process that keeps laboratories and domains up.

// `print!` and `eprint!` panic if their output cannot be written; `stdout` and `view::say` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
#[cfg(feature = "cache")]
pub mod cache_command;
#[cfg(feature = "daemon")]
pub mod daemon_command;
pub mod demo;
#[cfg(any(feature = "daemon", feature = "minicache", feature = "network", feature = "proxy"))]
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
#[cfg(feature = "minicache")]
pub mod minicache_command;
pub mod mirror_list;
#[cfg(feature = "network")]
pub mod net_command;
pub mod network_options;
#[cfg(any(feature = "lab", feature = "network", feature = "trace"))]
mod new_file;
#[cfg(feature = "op")]
pub mod op_command;
#[cfg(any(feature = "op", feature = "vm"))]
mod pairing;
#[cfg(any(feature = "uplinks", feature = "uplinks-daemon"))]
mod plan_report;
pub mod programs;
#[cfg(feature = "proxy")]
pub mod proxy_command;
pub mod serve;
pub mod signals;
#[cfg(feature = "lab")]
pub mod soak;
mod state_dir;
pub mod stdout;
#[cfg(feature = "tcp")]
pub mod tcp_command;
#[cfg(any(feature = "lab", feature = "network"))]
mod toml_name;
#[cfg(feature = "trace")]
pub mod trace_command;
#[cfg(feature = "uplinks-daemon")]
pub mod uplinks_command;
pub mod usage;
pub mod view;
#[cfg(feature = "vm")]
pub mod vm_command;

pub use anabranch::text as names;
