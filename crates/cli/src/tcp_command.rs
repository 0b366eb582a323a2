//! Runs `anabranch tcp`: Multipath TCP in this process.

pub mod args;

use std::io::{self, ErrorKind};

use anabranch_mptcp::{Config, ConnectionEvent};
use anabranch_mptcp_tun::{Peer, RelayTotals, TunHost, TunLink, relay};
use anabranch_net::Namespace;

use crate::exit::{Code, Failure, Outcome};
use crate::view::{note, plural};
use args::{StackArgs, Tcp, TcpCommand};

/// The largest packet on the devices, in bytes.
const MTU_BYTES: u16 = 1500;

/// Runs one end of a connection.
///
/// # Errors
/// 8 if the kernel makes no device, 4 if the peer does not answer or refuses, 1 if the connection breaks.
pub fn tcp(args: &Tcp) -> Outcome {
    let (peer, stack) = match &args.command {
        TcpCommand::Connect { peer, stack } => (Peer::Connect(*peer), stack),
        TcpCommand::Listen { port, stack } => (Peer::Listen(*port), stack),
    };
    let mut host = host(stack, matches!(peer, Peer::Listen(_))).map_err(|error| {
        let code = if error.kind() == ErrorKind::InvalidInput { Code::Usage } else { Code::Kernel };
        Failure::new(code, error.to_string())
    })?;
    if let (Peer::Listen(port), false) = (peer, stack.quiet) {
        note(&format!("listening at {} port {port}", stack.tun[0].address));
    }
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let on_event = |event: &ConnectionEvent| {
        if let Some(text) = told(event).filter(|_| !stack.quiet) {
            note(&text);
        }
    };
    let totals = relay(&mut host, peer, &mut input, &mut output, on_event).map_err(failed)?;
    if !stack.quiet {
        note(&summary(&totals));
    }
    Ok(())
}

fn host(args: &StackArgs, announce: bool) -> io::Result<TunHost> {
    let namespace = Namespace::current()?;
    let links = args
        .tun
        .iter()
        .map(|tun| TunLink::new(&namespace, &tun.name, tun.address, tun.kernel, tun.prefix, MTU_BYTES));
    let mut config = Config {
        mptcp: !args.plain,
        checksums: args.checksums,
        congestion_control: args.cc,
        scheduler: args.scheduler,
        path_manager: args.path_manager,
        ..Config::default()
    };
    config.tcp.mtu_bytes = MTU_BYTES;
    TunHost::new(config, links.collect::<io::Result<_>>()?, announce)
}

fn failed(error: io::Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::TimedOut => Code::Unreachable,
        ErrorKind::AddrNotAvailable => Code::Usage,
        _ => Code::Other,
    };
    Failure::new(code, error.to_string())
}

/// Describes an event, or returns `None` if the event is not shown.
fn told(event: &ConnectionEvent) -> Option<String> {
    match event {
        ConnectionEvent::Established { multipath: true } => Some("connected by Multipath TCP".to_owned()),
        ConnectionEvent::Established { multipath: false } => Some("connected by plain TCP".to_owned()),
        ConnectionEvent::FellBack => Some("no Multipath TCP on the way: goes on as plain TCP".to_owned()),
        ConnectionEvent::SubflowUp { local, remote } => Some(format!("subflow {local} to {remote} is up")),
        ConnectionEvent::SubflowDown { last, error } => {
            let (local, remote) = (last.local, last.remote);
            let why = error.map(|error| format!(": {error}")).unwrap_or_default();
            Some(format!("subflow {local} to {remote} is down{why}"))
        }
        _ => None,
    }
}

fn summary(totals: &RelayTotals) -> String {
    let kind = if totals.multipath { "Multipath TCP" } else { "plain TCP" };
    let subflows = plural(totals.subflows as usize, "subflow");
    format!("{} bytes sent, {} received; {kind}, {subflows}", totals.sent_bytes, totals.received_bytes)
}
