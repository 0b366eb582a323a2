//! What makes a file on plain web servers verifiable: Metalinks and leaf lists, written and read.
//!
//! [`MirrorList::make`] reads a file and writes two small ones: `NAME.meta4`, a Metalink (RFC 5854) with its
//! hashes, the hashes of its pieces and the URLs of its mirrors; and `NAME.b3leaves`, the hash of every 16
//! KiB. Of a directory it writes one Metalink with all its files. [`MirrorList::read`] says what a Metalink
//! holds. `docs/mirror-formats.md` has the formats; [`anabranch_mirror::metalink`] and
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
    /// Reads the file, or all files of the directory, once, and writes the list. Tells `listener` meanwhile
    /// how far it is; when that answers [`Control::Stop`], nothing is written.
    ///
    /// # Errors
    /// [`Usage`](crate::ErrorKind::Usage) if something makes no sense or is not there;
    /// [`System`](crate::ErrorKind::System) if a file cannot be read, or changes meanwhile;
    /// [`Target`](crate::ErrorKind::Target) if something is there already or cannot be written;
    /// [`Interrupted`](crate::ErrorKind::Interrupted) if it was stopped.
    pub fn run(self, mut listener: impl FnMut(Event) -> Control) -> Result<MadeMirrorList> {
        let make = if self.path.is_dir() { directory::make } else { single_file::make };
        make(&self, &mut listener)
    }
}
