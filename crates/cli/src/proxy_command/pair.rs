//! `anabranch proxy pair`.

use proxy::keys::{Clients, Pairing};

use super::args::Pair;
use super::state;
use crate::exit::{Failure, Outcome};

/// Makes a key for a client, and prints the line that it needs.
pub(super) fn pair(args: &Pair) -> Outcome {
    let state = state(args.state_dir.as_ref())?;
    let pairing = Pairing::new(state.pair.public()).map_err(|e| Failure::other(e.to_string()))?;
    let appended = Clients::append(&state.clients, &args.name, pairing.client.public());
    appended.map_err(|e| Failure::other(e.to_string()))?;
    println!("{}", pairing.to_line());
    Ok(())
}
