//! The numbers that a receiver's kernel counts on a TCP connection.

use crate::Span;

/// The numbers of TCP_INFO (linux/tcp.h) that tell how a download goes. Counts begin with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// The latest round-trip time: as the receiver of the data measures it, or else as the sender of the
    /// request does; zero if none is known.
    pub rtt: Span,
    /// The size of the largest segment that arrives, in bytes.
    pub mss: u32,
    /// Bytes that arrived in order, including headers, answers of proxies and TLS.
    pub received_bytes: u64,
    /// Segments that arrived out of order, by which a receiver notices losses.
    pub out_of_order: u32,
    /// Segments with data that arrived, in any order; 0 where the kernel does not tell.
    pub segments: u32,
}
