//! The packets of mmTP, version 1: one UDP payload is one packet.
//!
//! `docs/wire-mmtp.md` describes every field; this module implements them. [`parse`] returns a checked view
//! of received bytes without copying. The `emit_*` functions append a packet to a buffer. All integers are
//! big-endian. No input makes the parser panic.

mod code;
mod emit;
mod ext;
mod packet;
mod parse;

pub use emit::{
    data_header, emit_cookie, emit_data, emit_hashes, emit_meta, emit_padded, emit_probe, emit_refuse,
    emit_request, set_no_caches, set_responder,
};
pub use packet::{
    CACHED_NUMBER_END, COOKIE_PACKET, Cookie, DATA_HEADER, Data, HASHES_MAX, Hashes, Meta, NAME_MAX,
    NUMBER_END, PACKET_MAX, PADDED_MIN, PREFIX, Packet, ParseError, RANGES_MAX, Range, RangeKind, Ranges,
    Reason, Request, VERSION,
};
pub use parse::{Prefix, parse, peek};
