//! What the decisions tell of an interface.

use anabranch_algo::wifi::Reading;
use anabranch_kernel::uplinks::SurveyedAddress;

/// What becomes of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It carries.
    Active,
    /// It carries only while no other can.
    Backup,
    /// It came back, and is taken when it has held for a while.
    Settling,
    /// It is lost, but its endpoint stays because no other uplink works.
    Kept,
    /// It cannot be used now.
    Unusable,
    /// It is not to be used.
    Ignored,
}

/// What becomes of an interface, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The interface.
    pub name: String,
    /// What becomes of it.
    pub state: State,
    /// Why, in words.
    pub why: String,
    /// The addresses that it has as an uplink, each with the number of its endpoint.
    pub addresses: Vec<(SurveyedAddress, Option<u8>)>,
    /// The number of the routing table, counted from the first one; `None` if it has none.
    pub table: Option<usize>,
    /// How often it was lost.
    pub losses: u64,
    /// The last reading of its radio.
    pub reading: Option<Reading>,
    /// The mean time in which the radio delivers a packet, in nanoseconds.
    pub packet_time_ns: Option<u64>,
}
