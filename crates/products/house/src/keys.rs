//! Keys: Ed25519 (RFC 8032), one pair for each server and each client.
//!
//! A server makes its pair at its first start. A product's command `pair` makes a pair for a client. Its
//! public key goes into the server's list of [`Clients`]; its private key and the server's public key go into
//! a line ([`Pairing`]) that the user takes to the client.

mod clients;
mod key_file;
mod key_pair;
mod pairing;

pub use clients::{Clients, ClientsError, EntryError};
pub use key_file::KeyFileError;
pub use key_pair::{KEY_BYTES, KeyPair, NoRandomness, PublicKey, PublicKeyError};
pub use pairing::{Pairing, PairingError};
