//! The identifiers of connections and requests. A request's identifier contains that of its connection.

/// A mirror or server seen from one local address, as its index in the order of addition to its scheduler.
pub type ConnectionId = usize;
/// One request. An identifier is never used twice.
pub type FetchId = u64;

/// The most connections of one scheduler.
pub const CONNECTIONS_MAX: usize = 256;

/// Returns the identifier of the `n`th request of a scheduler, on `connection`.
pub(crate) const fn fetch_id(n: u64, connection: ConnectionId) -> FetchId {
    n * CONNECTIONS_MAX as u64 + connection as u64
}

/// Returns the connection that a request is on.
#[must_use]
pub const fn connection_of(fetch: FetchId) -> ConnectionId {
    (fetch % CONNECTIONS_MAX as u64) as usize
}
