//! Connections that peers begin: which ports accept them, and how many may be half open (RFC 4987 section
//! 3.1).

use std::collections::VecDeque;

/// A port that accepts connections, and those connections whose handshake is not complete.
///
/// The table of half-open connections is bounded. Once it is full, the oldest gives way to the newest (RFC
/// 4987 section 3.5). A flood of SYNs that are never answered thus displaces its own connections, while
/// clients get through that complete the handshake before the flood fills the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listener<C> {
    half_open: VecDeque<C>,
    /// The number of half-open connections that gave way to newer ones.
    pub(crate) displaced: u64,
}

impl<C: Copy + PartialEq> Listener<C> {
    pub(crate) const fn new() -> Self {
        Self { half_open: VecDeque::new(), displaced: 0 }
    }

    /// Adds a connection that a SYN has begun. Returns the connection that must give way to it, if the table
    /// is full.
    pub(crate) fn begin(&mut self, connection: C, max: usize) -> Option<C> {
        let displaced = if self.half_open.len() >= max.max(1) { self.half_open.pop_front() } else { None };
        self.displaced += u64::from(displaced.is_some());
        self.half_open.push_back(connection);
        displaced
    }

    /// Removes a connection whose handshake is complete or which is gone.
    pub(crate) fn end(&mut self, connection: C) {
        self.half_open.retain(|other| *other != connection);
    }
}
