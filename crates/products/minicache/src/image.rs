//! Objects on disk: an image that is open, and how objects come and go.
//!
//! The order of writes makes a crash harmless: an object's bytes and hashes are synced before its entry is
//! written, and a removed entry is synced before its chunks are given to another object. What has no entry is
//! free at the next start, since the room in use is worked out from the entries.
//!
//! `opened` has the image, `space` its free chunks and entries, `writer` an object that arrives, `check`
//! reads all.

mod check;
mod opened;
mod space;
#[cfg(test)]
mod tests;
mod writer;

pub use check::{Checked, Damage};
pub use opened::{Image, ImageError, Use};
pub use space::Room;
pub use writer::{Described, Writer};
