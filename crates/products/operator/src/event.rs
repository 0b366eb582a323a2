//! What an agent reports.

/// Something that happened at an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something that the user should know.
    Notice(String),
    /// A client is not served.
    Refused {
        /// The client, by its address if its name is not known.
        client: String,
        /// Why.
        text: String,
    },
    /// An instance is on its way here.
    Comes {
        /// Its name.
        name: String,
        /// The client from which it comes.
        client: String,
    },
    /// An instance runs here by a move.
    Runs {
        /// The client from which it came.
        client: String,
        /// The number of the move.
        id: String,
    },
    /// An instance does not come.
    GivenUp {
        /// The client from which it would have come.
        client: String,
        /// The number of the move.
        id: String,
    },
    /// An instance whose move was interrupted has been settled.
    Settled {
        /// Its name.
        name: String,
        /// Whether it runs here.
        runs_here: bool,
    },
}
