//! One file from many sources over many paths at once, every byte verified: the library.
//!
//! **Purpose.** What the `anabranch` command does, for other programs: get files and directories, serve
//! them, write and read lists of mirrors. It joins the machines (`mmtp`, `mirror`) with the worlds (sockets,
//! clocks, disks).
//!
//! **Non-goals.** No protocol and no decision lives here (`mmtp`, `mirror`, `algo`). Nothing is printed, no
//! signal is caught, no process is ended, and nothing is global: two transfers in one process do not disturb
//! each other.
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
//!             println!("{} of {} bytes", progress.done_bytes, progress.total_bytes);
//!         }
//!         Control::Continue
//!     })?;
//!     println!("{}: {}", report.target, report.verdict());
//!     Ok(())
//! }
//! ```
//!
//! Or on a thread of its own, to be waited for, listened to and stopped:
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
//! A get that is stopped keeps what came, or its error says why not; the same request goes on with it:
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
//! A hash of the whole is checked when all of it has come. In a build without optimization that takes ten
//! seconds for 400 MB. With `[profile.dev.package."*"]` and `opt-level = 3` in your `Cargo.toml` it is one.
//!
//! **Map.**
//! * [`Get`], [`Download`], [`Transfer`]: files and directories from all who have them; [`Reader`]: a file in
//!   order, while it comes. [`Checksum`]: what it must be. [`controllers`] and [`slow_starts`] name what
//!   [`Get::controller`] takes.
//! * [`Event`], [`Control`], [`Stop`]: what a caller is told, what it answers, how it stops what runs.
//! * [`Progress`], [`Report`]: how far a transfer is, and how it ended. [`Error`]: why it did not, with what
//!   to do ([`ErrorKind`]), what it is about ([`ErrorPlace`]), and which settings would help ([`Hint`]).
//! * [`Serve`], [`Source`]: files and directories for whoever knows their URI; [`mod@serve`].
//! * [`network`]: content by name in publish/subscribe networks, as their hosts fetch and publish it.
//! * [`mirror_list`]: what makes a file on plain web servers verifiable.
//! * [`text`]: names and texts from outside, fit for a terminal; numbers for people.

mod cache_dir;
mod catalog;
mod checksum;
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

/// Names and texts from outside, fit for a terminal; numbers for people.
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
pub use error::{Error, ErrorKind, ErrorPlace, Hint, Result};
pub use event::{Control, Event};
#[cfg(feature = "tokio")]
pub use get::EventStream;
pub use get::{Download, Get, Reader, Transfer, controllers, slow_starts};
pub use host_port::{HostPort, PORT};
pub use report::{
    BannedSource, FileReport, GroupedPath, HashProgress, PathGroups, PathProgress, PathState, Progress,
    Report, Verified, VouchedBy,
};
pub use secret::secret;
pub use serve::{Serve, Source};
pub use stop::Stop;

pub use anabranch_algo::Rate;
