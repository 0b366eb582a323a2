//! Writes and reads the lists that make a file on plain web servers verifiable: Metalinks and leaf lists.
//!
//! [`MirrorList::make`] reads a file and writes two small ones. `NAME.meta4` is a Metalink (RFC 5854) with
//! the file's hashes, the hashes of its pieces, and the URLs of its mirrors. `NAME.b3leaves` has the hash of
//! every 16 KiB. For a directory, it writes one Metalink with all files. [`MirrorList::read`] reads a
//! Metalink. `docs/mirror-formats.md` describes the formats; [`anabranch_mirror::metalink`] and
//! [`anabranch_mirror::leaf_list`] read and write them.
//!
//! ```no_run
//! # use anabranch::{Control, mirror_list::MirrorList};
//! # fn main() -> anabranch::Result<()> {
//! let made = MirrorList::make("film.mkv").url("https://a.example/pub/")?.run(|_| Control::Continue)?;
//! println!("{}", made.metalink.display());
//! for mirror in &MirrorList::read(&made.metalink)?.files[0].mirrors {
//!     println!("{}", mirror.url);
//! }
//! # Ok(())
//! # }
//! ```

mod directory;
mod hash;
mod listed;
mod make;
mod single_file;

pub use anabranch_mirror::url::Url;
pub use listed::{ListedFile, ListedMirror, MirrorList};
pub use make::{MadeMirrorList, MakeMirrorList, check_piece_bytes, parse_url};

use crate::{Control, Event, Result};

impl MakeMirrorList {
    /// Reads the file, or all files of the directory, once, and writes the list. Meanwhile `listener`
    /// receives the progress; if it answers [`Control::Stop`], nothing is written.
    ///
    /// # Errors
    /// - [`Usage`](crate::ErrorKind::Usage) if a setting makes no sense, or something that it names does not
    ///   exist.
    /// - [`System`](crate::ErrorKind::System) if a file cannot be read, or changes meanwhile.
    /// - [`Target`](crate::ErrorKind::Target) if a list exists already or cannot be written.
    /// - [`Interrupted`](crate::ErrorKind::Interrupted) if the listener stopped it.
    pub fn run(self, mut listener: impl FnMut(Event) -> Control) -> Result<MadeMirrorList> {
        let make = if self.path.is_dir() { directory::make } else { single_file::make };
        make(&self, &mut listener)
    }
}
