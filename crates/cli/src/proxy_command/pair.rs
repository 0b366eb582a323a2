//! Runs `anabranch proxy pair` and `anabranch proxy remove`.

use std::path::{Path, PathBuf};

use anabranch_proxy::config;
use anabranch_proxy::keys::{Clients, ClientsError, Pairing};

use super::args::{Pair, Remove};
use crate::exit::{Failure, Outcome};
use crate::state_dir::state_dir;
use crate::stdout;
use crate::view::note;

/// Returns the directory in which a server keeps its keys.
fn kept_in(given: Option<&Path>) -> Outcome<PathBuf> {
    let nowhere = || Failure::usage("there is no home directory to keep keys in: say --state-dir");
    given.map(Path::to_owned).or_else(state_dir).ok_or_else(nowhere)
}

/// Removes a client from the server's list.
pub(super) fn remove(args: &Remove) -> Outcome {
    let list = config::clients_file(&kept_in(args.state_dir.as_deref())?);
    Clients::remove(&list, &args.name).map_err(|e| match e {
        ClientsError::Unknown(..) => Failure::usage(format!("{e} (in {})", list.display())),
        e => Failure::other(e.to_string()),
    })?;
    note(&format!("{} is not let in any more", args.name));
    Ok(())
}

/// Makes a key for a client, and prints the line that the client needs.
pub(super) fn pair(args: &Pair) -> Outcome {
    let dir = kept_in(args.state_dir.as_deref())?;
    let (pair, list) = config::state(&dir).map_err(|e| Failure::other(e.to_string()))?;
    let pairing = Pairing::new(pair.public()).map_err(|e| Failure::other(e.to_string()))?;
    let appended = Clients::append(&list, &args.name, pairing.client.public());
    appended.map_err(|e| match e {
        ClientsError::NameTaken(name) => Failure::usage(format!(
            "there is a client `{name}` already: choose another --name, or take it off first \
             (anabranch proxy remove {name})"
        )),
        e => Failure::other(e.to_string()),
    })?;
    stdout::print(format!("{}\n", pairing.to_line()))
}
