//! Pairs the agents of two hosts by one line: `vm pair` and `vm trust`, `op pair` and `op trust`.

use std::io::Read as _;

use anabranch_house::keys::{Clients, ClientsError, Pairing};
use anabranch_machines::store::{Host, Store};

use crate::exit::{Code, Failure, Outcome};
use crate::stdout;
use crate::view::note;

fn failure(error: anabranch_machines::Error) -> Failure {
    let code = match &error {
        anabranch_machines::Error::Usage(_) | anabranch_machines::Error::NotFound(_) => Code::Usage,
        _ => Code::Other,
    };
    Failure::new(code, error.to_string())
}

/// Makes a key for a client, and prints the line that the client needs.
pub(crate) fn pair(store: &Store, client: &str) -> Outcome {
    let other = |text: String| Failure::other(text);
    let pairing = Pairing::new(store.key().map_err(failure)?.public()).map_err(|e| other(e.to_string()))?;
    Clients::append(&store.clients_file(), client, pairing.client.public()).map_err(|e| match e {
        ClientsError::NameTaken(_) | ClientsError::Entry(_) => Failure::usage(e.to_string()),
        e => other(e.to_string()),
    })?;
    stdout::print(format!("{}\n", pairing.to_line()))
}

/// Reads the line of a host, and keeps it. `what` can move there.
pub(crate) fn trust(store: &Store, host: &str, address: &str, what: &str) -> Outcome {
    let mut line = String::new();
    let read = std::io::stdin().take(4_096).read_to_string(&mut line);
    read.map_err(|e| Failure::usage(format!("the line of `pair` is read from standard input: {e}")))?;
    let line = line.trim().to_owned();
    store.set_host(host, &Host { address: address.to_owned(), line }).map_err(failure)?;
    note(&format!("{what} can move to {host}, at {address}"));
    Ok(())
}
