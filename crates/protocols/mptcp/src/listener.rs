//! Connections that peers begin: which ports take them, and how many may be half open (RFC 4987 section 3.1).

use std::collections::VecDeque;

/// A port that takes connections, and those whose handshake is not over.
///
/// The table of half-open connections is bounded. Once it is full, the oldest gives way to the newest (RFC
/// 4987 section 3.5): a flood of SYNs whose senders never answer displaces its own, while those of clients
/// that answer within the time that the flood takes to fill the table get through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listener<C> {
    half_open: VecDeque<C>,
    /// Connections that gave way.
    pub(crate) displaced: u64,
}

impl<C: Copy + PartialEq> Listener<C> {
    pub(crate) const fn new() -> Self {
        Self { half_open: VecDeque::new(), displaced: 0 }
    }

    /// A SYN has begun a connection; returns one that must give way to it.
    pub(crate) fn begin(&mut self, connection: C, max: usize) -> Option<C> {
        let displaced = if self.half_open.len() >= max.max(1) { self.half_open.pop_front() } else { None };
        self.displaced += u64::from(displaced.is_some());
        self.half_open.push_back(connection);
        displaced
    }

    /// A connection's handshake is over, or the connection is gone.
    pub(crate) fn end(&mut self, connection: C) {
        self.half_open.retain(|other| *other != connection);
    }
}
