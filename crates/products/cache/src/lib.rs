//! One HTTP endpoint in front of content-addressed stores: every object comes from all of a store's
//! mirrors over all links, is verified by its own name, and is kept.
//!
//! **Purpose.** Updaters such as pip, apt, Nix, containerd and casync are pointed at the cache by a URL.
//! The cache fetches what it does not have by [`anabranch::Get`], verifies it, and answers the next
//! request from its disk.
//!
//! **Non-goals.** It is no open proxy: it fetches only from the sources that its settings name. It passes
//! on credentials of clients only where they say so, and answers no method besides GET and HEAD. How bytes
//! are fetched is decided in `anabranch`, how HTTP is spoken in `http`.
//!
//! **Map.** All but the last know no socket:
//! * [`config`]: the settings, in TOML. `preset_names`: the presets that they name. [`preset`]: what a path
//!   of a store stands for: its URLs and its hash.
//! * [`digest`]: hashes and their texts. [`freshness`]: HTTP's rules of caching. [`eviction`]: which objects
//!   a full store gives up.
//! * `neighbours` (feature `gateway`): caches of one LAN that share what has a hash.
//! * [`store`]: objects on disk, verified at each read.
//! * `gateway` (feature `gateway`): the HTTP server, and the fetches that its misses begin.

pub mod config;
pub mod digest;
pub mod eviction;
pub mod freshness;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "gateway")]
pub mod neighbours;
pub mod preset;
mod preset_names;
pub mod store;
