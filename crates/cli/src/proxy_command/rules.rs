//! `anabranch proxy rules`.

use std::net::ToSocketAddrs as _;

use anabranch_proxy::client::ServerName;
use anabranch_proxy::config::{self, Settings as _};
use anabranch_proxy::{Host, redirect};

use super::args::Rules;
use super::unusable;
use crate::exit::{Failure, Outcome};
use crate::stdout;

/// Prints the rules that redirect programs' connections to a client.
pub(super) fn rules(args: &Rules) -> Outcome {
    let file = args.config.as_deref().map(config::load::<config::Client>).transpose().map_err(unusable)?;
    let mut given = config::Client::default();
    let texts = |set: &mut config::Client, name: &str, texts: &[String]| {
        set.set(name, texts).map_err(|e| Failure::usage(format!("--{name}: {e}")))
    };
    if let Some(server) = &args.server {
        texts(&mut given, "server", std::slice::from_ref(server))?;
    }
    if !args.transparent.is_empty() {
        texts(&mut given, "transparent", &args.transparent)?;
    }
    let all = given.over(file.unwrap_or_default());
    let listeners = all.transparent.unwrap_or_default();
    let named = all.server.unwrap_or_default();
    if named.is_empty() || listeners.is_empty() {
        return Err(Failure::usage(
            "rules need `--transparent`, where the client listens, and `--server`, which they leave alone: \
             say both, or --config with the client's file",
        ));
    }
    let mut servers = Vec::new();
    for name in named {
        let ServerName::At(server) = name else {
            return Err(Failure::usage(format!(
                "the servers of {name} change: let the client set the rules, with --install-rules"
            )));
        };
        match server.host() {
            Host::Ip(ip) => servers.push((*ip, server.port()).into()),
            Host::Name(name) => servers.extend(
                (&**name, server.port())
                    .to_socket_addrs()
                    .map_err(|e| Failure::other(format!("the server's name {name}: {e}")))?,
            ),
        }
    }
    stdout::print(redirect::rules(&listeners, &servers))
}
