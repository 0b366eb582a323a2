//! What a receiver's kernel counts on a TCP connection.

use crate::Span;

/// The numbers of TCP_INFO (linux/tcp.h) that tell how a download goes. Counts are since the connection
/// began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// The latest round-trip time: as the receiver of the data sees it, else as the sender of the request;
    /// zero if none is known.
    pub rtt: Span,
    /// Bytes of the largest segment that arrives.
    pub mss: u32,
    /// Bytes that arrived in order, with headers, proxies' answers and TLS.
    pub received_bytes: u64,
    /// Segments that arrived out of order: what a receiver sees of losses.
    pub out_of_order: u32,
    /// Segments with data that arrived, in whatever order; 0 where the kernel does not tell.
    pub segments: u32,
}
