//! Configures flows of TCP and Multipath TCP.

use anabranch_algo::Time;
use anabranch_mptcp::Config;
use anabranch_sim::RouteId;

/// The routes of a path.
#[derive(Clone, Copy, Debug)]
pub struct TcpPath {
    /// Route from the sender of the data to the receiver.
    pub down: RouteId,
    /// Route from the receiver to the sender.
    pub up: RouteId,
}

/// The host that opens the connections and has an address for each path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opener {
    /// The host that sends the data, as an upload.
    #[default]
    Sender,
    /// The host that receives the data, as a download.
    Receiver,
}

/// The configuration of a flow.
#[derive(Clone, Debug)]
pub struct TcpFlowConfig {
    /// Settings of both stacks; the flow sets their addresses.
    pub stack: Config,
    /// The paths, in the order in which the opener tries them.
    pub paths: Vec<TcpPath>,
    /// The host that opens the connections.
    pub opener: Opener,
    /// The transfers, each a connection.
    pub transfers: Vec<TransferConfig>,
    /// Objects that the transfers with [`Workload::Fetch`] share, each with its size in bytes: a transfer
    /// that is ready fetches the next one.
    pub objects: Vec<u64>,
    /// Time at which all connections are aborted; `None` for never.
    pub stop: Option<Time>,
}

/// The configuration of a transfer.
#[derive(Clone, Debug)]
pub struct TransferConfig {
    /// Time at which the connection is opened.
    pub start: Time,
    /// The data.
    pub workload: Workload,
}

/// The data of a transfer.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Messages that the sender writes one after the other; then it closes the connection.
    Messages(Vec<Message>),
    /// Data without end.
    Endless,
    /// The receiver asks for one of the flow's objects by a request of this size in bytes, and for the next
    /// one when the object has arrived. If there is none left, it closes the connection.
    Fetch {
        /// Size of a request, bytes.
        request_bytes: u64,
    },
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Time at which the program writes it; not before the message before.
    pub at: Time,
    /// Size, bytes.
    pub bytes: u64,
}
