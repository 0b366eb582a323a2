//! What two agents say to each other, inside TLS: lines of JSON; a module, a state or frames follow their
//! line as bytes.

use std::net::IpAddr;

use anabranch_function::abi::Side;
use anabranch_machines::journal::{Arrival, Asked};
use anabranch_machines::wire::MoveId;
use serde::{Deserialize, Serialize};

use crate::spec::Spec;

/// The protocol's name in TLS (RFC 7301).
pub const ALPN: &[u8] = b"anabranch-op/1";
/// The port on which an agent listens, unless it is told another.
pub const PORT: u16 = 26_231;
/// The most bytes of a change of a state: an instance's memory, of which every second piece has changed.
pub const STATE_BYTES_MAX: usize = 2 * crate::wasm::MEMORY_BYTES_MAX;
/// The most frames of one message.
pub const FRAMES_MAX: usize = 4_096;

/// A frame that came for an instance, and the side at which it came.
pub type Frame = (Side, Vec<u8>);

/// A request of a source.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// By which addresses the host is reached.
    Hello,
    /// Whether a module is there.
    Have {
        /// Its hash.
        module: String,
    },
    /// A module follows.
    Module {
        /// Its length.
        bytes: usize,
    },
    /// To wait for the state of an instance, whose module is there.
    Prepare {
        /// The number of the move.
        id: MoveId,
        /// What it is made of.
        spec: Box<Spec>,
    },
    /// What has changed in the state follows ([`crate::delta`]).
    State {
        /// The number of the move.
        id: MoveId,
        /// How long the instance has run, milliseconds, if it stands still: nothing changes after this.
        age_ms: Option<u64>,
        /// The number of bytes that follow.
        bytes: usize,
    },
    /// To run an instance, or to give it up.
    Decide {
        /// The number of the move.
        id: MoveId,
        /// Which of the two.
        asked: Asked,
    },
    /// Frames follow, which came for an instance at its source: each by its side and length.
    Frames {
        /// The number of the move.
        id: MoveId,
        /// 0 for inside, and the length.
        frames: Vec<(u32, usize)>,
    },
    /// The source has forgotten the instance.
    Done {
        /// The number of the move.
        id: MoveId,
    },
}

/// An answer of a destination.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "snake_case")]
pub enum Told {
    /// The addresses of the host.
    Hello {
        /// Those.
        addresses: Vec<IpAddr>,
    },
    /// Whether a module is there.
    Have {
        /// That.
        is_there: bool,
    },
    /// It is done.
    Done,
    /// What is true of a move.
    Decided {
        /// That.
        state: Arrival,
    },
    /// It is not done.
    Refused {
        /// Why, for people.
        text: String,
    },
}
