//! The library of anabranch: fetches one file from many sources over many paths at once, and verifies every
//! byte.
//!
//! **Purpose.** It offers the functions of the `anabranch` command to other programs: getting files and
//! directories, serving them, and writing and reading lists of mirrors. It joins the machines (`mmtp`,
//! `mirror`) with the worlds (sockets, clocks, disks).
//!
//! **Non-goals.** No protocol and no decision lives here; these are in `mmtp`, `mirror` and `algo`. The
//! library prints nothing, catches no signal, ends no process, and has no global state: two transfers in one
//! process do not disturb each other. A [`Client`] shares threads among many.
//!
//! Get a file from two servers over two interfaces:
//!
//! ```no_run
//! use anabranch::{Control, Event, Get};
//!
//! fn main() -> anabranch::Result<()> {
//!     let get = Get::new(["https://a.example/f.iso", "https://b.example/f.iso"])?.via("wlan0").via("wwan0");
//!     let report = get.to_file("f.iso").run(|event| {
//!         if let Event::Progress(progress) = event {
//!             println!("{} of {:?} bytes", progress.done_bytes, progress.total_bytes);
//!         }
//!         Control::Continue
//!     })?;
//!     println!("{}: {}", report.target, report.verdict());
//!     Ok(())
//! }
//! ```
//!
//! A transfer can also run on a thread of its own; a program can wait for it, listen to it and stop it:
//!
//! ```no_run
//! # fn main() -> anabranch::Result<()> {
//! let transfer = anabranch::Get::new(["https://a.example/f.iso"])?.to_file("f.iso").start()?;
//! for event in transfer.events() {
//!     println!("{event:?}");
//! }
//! let report = transfer.wait()?; // with the feature "tokio": transfer.await?, transfer.events().stream()
//! # Ok(())
//! # }
//! ```
//!
//! A transfer that is stopped keeps the bytes that have arrived, or its error says why it does not. An equal
//! request resumes with them:
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//!
//! use anabranch::{Control, ErrorKind, Get};
//!
//! fn main() -> anabranch::Result<()> {
//!     let get = || Ok(Get::new(["https://a.example/f.iso"])?.to_file("f.iso"));
//!     let end = Instant::now() + Duration::from_secs(5);
//!     let stopped = get()?.run(|_| if Instant::now() < end { Control::Continue } else { Control::Stop });
//!     match stopped {
//!         Err(error) if error.kind() == ErrorKind::Interrupted => println!("{error}"),
//!         done => println!("{}", done?.verdict()),
//!     }
//!     let report = get()?.run(|_| Control::Continue)?;
//!     println!("{} bytes were there", report.last.resumed_bytes);
//!     Ok(())
//! }
//! ```
//!
//! A hash of the whole file is checked when all bytes have arrived. In a build without optimization that
//! takes ten seconds for 400 MB. With `[profile.dev.package."*"]` and `opt-level = 3` in your `Cargo.toml` it
//! takes one second.
//!
//! **Map.**
//! * [`Get`], [`Download`], [`Transfer`]: fetch files and directories from all who have them. [`Reader`]: a
//!   file that is read in order while it arrives. [`Ranges`]: parts of a file without the rest. [`Checksum`]:
//!   a hash that a file must have. [`controllers`] and [`slow_starts`]: the names that [`Get::controller`]
//!   takes.
//! * [`Client`]: threads that many transfers share. [`SharedLimit`]: a rate limit that many transfers share.
//! * [`Event`], [`Control`], [`Stop`]: the events of an operation, a caller's answers, and a way to stop it.
//! * [`Progress`], [`Report`]: the progress of a transfer, and its outcome. [`Error`]: the reason of a
//!   failure, with its [`ErrorKind`], the [`ErrorPlace`] that it is about, and the settings that would help
//!   ([`Hint`]).
//! * [`Serve`], [`Source`]: serve files and directories to all who know their URI; see [`mod@serve`].
//! * [`network`]: content by name in publish/subscribe networks, fetched and published by their hosts.
//! * [`mirror_list`]: lists that make files on plain web servers verifiable.
//! * [`text`]: makes names and texts from outside safe for a terminal, and formats numbers for people.

mod cache_dir;
mod catalog;
mod checksum;
mod client;
mod error;
mod event;
mod file_identity;
mod filenames;
mod format;
pub mod get;
mod hashing;
mod host_port;
pub mod mirror_list;
mod monitor;
pub mod network;
mod openpgp;
mod report;
mod secret;
pub mod serve;
mod stop;
mod target;
mod terminal;

/// Makes names and texts from outside safe for a terminal, and formats numbers for people.
pub mod text {
    pub use crate::filenames::show;
    pub use crate::format::{bytes, duration, rate, seconds};
    pub use crate::terminal::printable;
}

/// The format on disk, for tests and fuzz targets of this workspace. It changes without notice.
#[doc(hidden)]
pub mod on_disk {
    pub use crate::target::{PART_PREFIX, journal};
}

pub use cache_dir::cache_dir;
pub use checksum::Checksum;
pub use client::Client;
pub use error::{Error, ErrorKind, ErrorPlace, Hint, Result};
pub use event::{Control, Event};
#[cfg(feature = "tokio")]
pub use get::EventStream;
pub use get::{
    Download, Get, Ranges, RangesTransfer, Reader, Transfer, WantedFile, controllers, slow_starts,
};
pub use host_port::{HostPort, PORT};
pub use report::{
    BannedSource, FileReport, GroupedPath, HashProgress, PathGroups, PathProgress, PathState, Progress,
    Report, Verified, VouchedBy,
};
pub use secret::secret;
pub use serve::{Serve, Source};
pub use stop::Stop;

pub use anabranch_algo::Rate;
pub use anabranch_house::links::Mode;
pub use anabranch_net::SharedLimit;
