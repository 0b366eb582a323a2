//! A cache that is up before the first byte is asked for: objects by the hash of their bytes, in one file.
//!
//! **Purpose.** Serves the objects of an *image* over HTTP: a fixed table of entries, read at the start, and
//! an area of chunks. A process is up in milliseconds, holds little more than the table in memory, and sends
//! only bytes that it has compared with a hash. What it lacks it fetches from origins, in peer mode.
//!
//! **Non-goals.** It knows no presets, no documents that change and no rules of HTTP caching: those are
//! `anabranch_cache`'s. An object is sent once it is whole, not while it arrives. It speaks no TLS.
//!
//! **Map.** `docs/minicache.md` has the design and the format of the image.
//! * [`name`]: the names of objects. [`layout`]: the superblock and the entries of the table, as bytes.
//! * [`disk`]: what an image is written to. [`table`]: the table in memory, and opens by name.
//! * [`image`]: objects on disk: [`Image`](image::Image), its [`Writer`](image::Writer).
//! * [`serve`]: the HTTP server, and what a miss does in peer mode.
//! * [`keeper`]: the parent that keeps the socket and replaces a worker that dies.
//! * [`proof`]: which blocks of an object are what was written.

pub mod disk;
pub mod image;
pub mod keeper;
pub mod layout;
pub mod name;
pub mod proof;
pub mod serve;
pub mod table;
