//! `anabranch proxy client`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use proxy::client::{Options, start};
use proxy::ingress::Users;
use proxy::keys::Pairing;

use super::args::Client;
use super::view::View;
use super::{run, wrong};
use crate::exit::{Failure, Outcome};

/// Where programs find SOCKS5 if nobody says where (RFC 1928 section 3).
const SOCKS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1_080);

/// The keys, if there are to be some.
fn pairing(args: &Client) -> Outcome<Option<Pairing>> {
    let line = match (&args.pair, &args.pair_file) {
        (Some(line), _) => line.clone(),
        (None, Some(path)) => fs::read_to_string(path)
            .map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))?,
        (None, None) => return Ok(None),
    };
    line.parse().map(Some).map_err(|e| Failure::usage(format!("{e}")))
}

/// Runs a client until a signal ends it.
pub(super) fn client(args: &Client) -> Outcome {
    let view = View { json: args.json, quiet: args.quiet };
    let begun = || {
        let is_silent = args.socks.is_empty() && args.http.is_empty();
        let options = Options {
            socks: if is_silent { vec![SOCKS] } else { args.socks.clone() },
            http: args.http.clone(),
            users: Users::new(args.user.clone()),
            is_strict: args.strict_socks,
            via: args.via.clone(),
            ..Options::new(args.server.clone(), pairing(args)?)
        };
        start(options).map_err(wrong)
    };
    view.end(begun().and_then(|client| run(client, &view)))
}
