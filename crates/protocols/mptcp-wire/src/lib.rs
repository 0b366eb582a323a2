//! Multipath TCP on the wire.
//!
//! **Purpose.** Reads and writes the TCP options of Multipath TCP, version 0 (RFC 6824) and version 1 (RFC
//! 8684). Computes the values in these options: tokens, initial data sequence numbers, HMACs, checksums, and
//! 64-bit data sequence numbers of which 32 bits were sent. The crate serves a protocol stack and readers of
//! captures alike: it reports an option that a snap length cut off, and keeps an unknown one.
//!
//! **Non-goals.** The crate keeps no state and allocates nothing. Of the TCP header it reads only the fixed
//! part and the options. The stack decides which option belongs on which segment.
//!
//! **Map.**
//! * [`tcp`]: [`TcpHeader`], the fixed part of a TCP header, and [`Flags`].
//! * [`options`]: [`TcpOptions`], an iterator over the options of a TCP header; [`OptionBuffer`], the 40
//!   bytes in which options are written.
//! * [`mptcp`]: [`MptcpOption`], the subtypes of option 30.
//! * [`dss`]: the Data Sequence Signal, the option of each segment with data.
//! * [`address`]: ADD_ADDR and REMOVE_ADDR.
//! * [`keys`]: [`Key`]: token, initial data sequence number, HMACs of MP_JOIN and ADD_ADDR.
//! * [`hmac`]: HMAC (RFC 2104) with SHA-1 and SHA-256.
//! * [`checksum`]: the Internet checksum (RFC 1071) and the checksum of a DSS.
//! * [`data_number`]: [`expand`], 64-bit numbers from their lowest 32 bits.
#![no_std]
#![forbid(unsafe_code)]
#[cfg(test)]
extern crate std;

pub mod address;
mod bytes;
pub mod checksum;
pub mod data_number;
pub mod dss;
pub mod hmac;
pub mod keys;
pub mod mptcp;
pub mod options;
pub mod tcp;

pub use address::{AddAddr, RemoveAddr};
pub use checksum::InternetChecksum;
pub use data_number::expand;
pub use dss::{DataNumber, Dss, DssMapping};
pub use keys::{Key, Version};
pub use mptcp::{Join, MpCapable, MptcpOption, Reset};
pub use options::{OptionBuffer, OptionError, SackBlocks, TcpOption, TcpOptions};
pub use tcp::{Flags, TcpHeader, TcpHeaderError};
