//! `anabranch proxy pair`.

use anabranch_proxy::config;
use anabranch_proxy::keys::{Clients, ClientsError, Pairing};

use super::args::Pair;
use super::places::state_dir;
use crate::exit::{Failure, Outcome};
use crate::stdout;

/// Makes a key for a client, and prints the line that it needs.
pub(super) fn pair(args: &Pair) -> Outcome {
    let nowhere = || Failure::usage("there is no home directory to keep keys in: say --state-dir");
    let dir = args.state_dir.clone().or_else(state_dir).ok_or_else(nowhere)?;
    let (pair, list) = config::state(&dir).map_err(|e| Failure::other(e.to_string()))?;
    let pairing = Pairing::new(pair.public()).map_err(|e| Failure::other(e.to_string()))?;
    let appended = Clients::append(&list, &args.name, pairing.client.public());
    appended.map_err(|e| match e {
        ClientsError::NameTaken(name) => Failure::usage(format!(
            "there is a client `{name}` already: choose another --name, or delete its lines in {} first",
            list.display()
        )),
        e => Failure::other(e.to_string()),
    })?;
    stdout::print(format!("{}\n", pairing.to_line()))
}
