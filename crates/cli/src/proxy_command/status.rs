//! Runs `anabranch proxy status`, and shows the state of a role while it runs.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anabranch_proxy::Running;
use anabranch_proxy::status::control::{self, LocalControl};
use anabranch_proxy::status::local::{self, LocalStatus};
use anabranch_proxy::status::web::{self, WebStatus};
use anabranch_proxy::status::{Connection, KnownServer, Link, Role, Snapshot, Token};
use console::Term;
use nix::unistd::geteuid;

use super::args::Status;
use super::places::{all_dirs, own_dir};
use super::view::View;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::state_dir::state_dir;
use crate::stdout;
use crate::view::{Column, bytes, duration, plural, printable, rate, table};

/// The largest number of connections that are listed; `--json` has more.
const ROWS_MAX: usize = 20;
/// The width without a terminal, at which nothing is left out.
const WIDE: usize = 1_000;

/// Holds the socket and the page on which a role shows its state, until it is dropped.
pub(super) struct Shown {
    _local: Option<LocalStatus>,
    _control: Option<LocalControl>,
    _page: Option<WebStatus>,
}

/// Shows a role's state to this user, and on a page if `page` is given.
pub(super) fn show(running: &Running, page: Option<Page>, view: &View) -> Outcome<Shown> {
    let status = running.status();
    let page = page.map(|Page { address, token_file }| -> Outcome<_> {
        let token = Token::load_or_create(&token_file).map_err(|e| Failure::other(e.to_string()))?;
        let served = web::serve(&status, address, token.clone());
        let page = served.map_err(|e| Failure::other(e.to_string()))?;
        view.page(page.address(), &token, &token_file);
        Ok(page)
    });
    let page = page.transpose()?;
    let nowhere = || io::Error::new(io::ErrorKind::NotFound, "there is no directory for its socket");
    let control = (status.role() == Role::Server).then(|| {
        let control = own_dir().ok_or_else(nowhere).and_then(|dir| control::listen(&status, &dir));
        control.inspect_err(|e| {
            view.notice(&format!("`anabranch proxy drain` will not find this process: {e}"));
        })
    });
    let local = own_dir().ok_or_else(nowhere).and_then(|dir| local::listen(&status, &dir));
    let local = local.inspect_err(|e| {
        view.notice(&format!("`anabranch proxy status` will not find this process: {e}"));
    });
    Ok(Shown { _local: local.ok(), _control: control.and_then(Result::ok), _page: page })
}

/// Holds the address of the status page, and the file of its token.
pub(super) struct Page {
    pub(super) address: SocketAddr,
    pub(super) token_file: PathBuf,
}

impl Page {
    /// Creates the page of a role whose state directory is `dir`. Returns `None` without an address.
    pub(super) fn new(address: Option<SocketAddr>, role: &str, dir: Option<&Path>) -> Outcome<Option<Self>> {
        let Some(address) = address else { return Ok(None) };
        let dir = dir.map(Path::to_owned).or_else(state_dir);
        let dir =
            dir.ok_or_else(|| Failure::usage("there is no home directory to keep the page's token in"))?;
        anabranch_proxy::config::state_directory(&dir).map_err(|e| Failure::other(e.to_string()))?;
        Ok(Some(Self { address, token_file: dir.join(format!("proxy-{role}.token")) }))
    }
}

/// Prints the state of all roles of this user.
pub(super) fn status(args: &Status) -> Outcome {
    json::end(args.json, print(args))
}

fn print(args: &Status) -> Outcome {
    let (mut found, mut is_denied) = (Vec::new(), false);
    for dir in all_dirs() {
        is_denied |= std::fs::read_dir(&dir).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
        for path in local::sockets(&dir) {
            match local::ask(&path) {
                Ok(snapshot) => found.push(snapshot),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => is_denied = true,
                // The role has ended and left its socket.
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {}
                Err(e) => return Err(Failure::other(format!("{}: {e}", path.display()))),
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::other(match is_denied {
            true => "no proxy of this user runs here, but maybe one of another: sudo anabranch proxy status",
            false if geteuid().is_root() => "no proxy of this user runs here",
            false => "no proxy of this user runs here; one of root's: sudo anabranch proxy status",
        }));
    }
    let width = match io::stdout().is_terminal() {
        true => usize::from(Term::stdout().size().1),
        false => WIDE,
    };
    for (place, snapshot) in found.iter().enumerate() {
        if args.json {
            json::put("status", snapshot);
            continue;
        }
        if place > 0 {
            stdout::line("");
        }
        for line in lines(snapshot, width) {
            stdout::line(printable(&line));
        }
    }
    Ok(())
}

/// Makes a text that may come from outside safe for a terminal.
fn shown(text: &str) -> String {
    printable(text).into_owned()
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Writes a snapshot for people.
fn lines(snapshot: &Snapshot, width: usize) -> Vec<String> {
    let to =
        snapshot.several.server.as_ref().map_or_else(String::new, |server| format!(" to {}", shown(server)));
    let up = duration(snapshot.uptime_s);
    let mut out = vec![format!("{}{to}, process {}, up {up}", snapshot.role.name(), snapshot.pid)];
    let listening: Vec<_> =
        snapshot.listening.iter().map(|one| format!("{} {}", one.door, one.address)).collect();
    out.push(format!("listening: {}", listening.join(", ")));
    let subflows: usize = snapshot.trunks.iter().map(|trunk| trunk.subflows.len()).sum();
    out.push(format!("{} with {}", plural(snapshot.trunks.len(), "trunk"), plural(subflows, "subflow")));
    if snapshot.several.servers.len() > 1 {
        out.push(String::new());
        out.extend(server_table(&snapshot.several.servers, width));
    }
    out.extend(
        snapshot.several.load.map(|load| format!("load: {} of {} connections", load.open, load.capacity)),
    );
    out.extend(snapshot.several.drain.as_ref().map(|drain| format!("drain: {}", super::drain::line(drain))));
    out.extend(snapshot.transport.as_ref().map(|says| format!("trunks: {}", shown(says))));
    out.push(String::new());
    match &snapshot.links[..] {
        [] => out.push("links: none is used yet".to_owned()),
        links => out.extend(link_table(links, width)),
    }
    out.push(String::new());
    let totals = &snapshot.totals;
    out.push(format!(
        "connections: {} open, {} ended ({} failed; {} sent, {} received)",
        snapshot.open_connections,
        totals.connections,
        totals.failed,
        bytes(totals.sent_bytes),
        bytes(totals.received_bytes)
    ));
    if snapshot.datagram_flows > 0 {
        out.push(format!("datagrams: of {} programs", snapshot.datagram_flows));
    }
    let mut most: Vec<&Connection> = snapshot.connections.iter().collect();
    most.sort_by_key(|one| std::cmp::Reverse(one.sent_bytes + one.received_bytes));
    most.truncate(ROWS_MAX);
    if !most.is_empty() {
        out.extend(connection_table(&most, width));
    }
    let left_out = snapshot.open_connections.saturating_sub(most.len() as u64);
    if left_out > 0 && !most.is_empty() {
        out.push(format!("… and {left_out} more"));
    }
    out
}

fn link_table(links: &[Link], width: usize) -> Vec<String> {
    let cells = |of: &dyn Fn(&Link) -> String| links.iter().map(of).collect::<Vec<_>>();
    let percent = |value: f64| format!("{value:.1} %");
    let mut columns = vec![Column::names("link", cells(&|link| shown(&link.name)))];
    if links.iter().any(|link| link.client.is_some()) {
        columns.push(Column::names("client", cells(&|link| or_dash(link.client.as_deref().map(shown)))));
    }
    columns.extend([
        Column::numbers("in", 0, cells(&|link| rate(link.received_rate_bytes))),
        Column::numbers("out", 0, cells(&|link| rate(link.sent_rate_bytes))),
        Column::numbers("rtt", 0, cells(&|link| or_dash(link.rtt_us.map(milliseconds)))),
        Column::numbers("loss", 0, cells(&|link| or_dash(link.loss_percent.map(percent)))),
        Column::numbers("share", 0, cells(&|link| percent(link.share_percent))),
        Column::numbers("received", 3, cells(&|link| bytes(link.received_bytes))),
        Column::numbers("sent", 2, cells(&|link| bytes(link.sent_bytes))),
        Column::numbers("resent", 4, cells(&|link| link.retransmissions.to_string())),
    ]);
    if links.iter().any(|link| link.cost.is_some_and(|cost| cost > 0)) {
        columns.push(Column::numbers(
            "cost",
            1,
            cells(&|link| or_dash(link.cost.map(|cost| cost.to_string()))),
        ));
    }
    if links.iter().any(|link| link.cap_bytes.is_some()) {
        let cap =
            |link: &Link| Some(format!("{} of {}", bytes(link.cap_used_bytes?), bytes(link.cap_bytes?)));
        columns.push(Column::numbers("cap", 0, cells(&|link| or_dash(cap(link)))));
    }
    table(columns, &cells(&|link| link.state.name().to_owned()), width)
}

fn server_table(servers: &[KnownServer], width: usize) -> Vec<String> {
    let cells = |of: &dyn Fn(&KnownServer) -> String| servers.iter().map(of).collect::<Vec<_>>();
    let load = |server: &KnownServer| Some(format!("{} of {}", server.open?, server.capacity?));
    let columns = vec![
        Column::names("server", cells(&|server| shown(&server.name))),
        Column::numbers("rtt", 0, cells(&|server| or_dash(server.rtt_us.map(milliseconds)))),
        Column::numbers("load", 0, cells(&|server| or_dash(load(server)))),
    ];
    let state = |server: &KnownServer| match &server.why {
        Some(why) => format!("{}: {}", server.state.name(), shown(why)),
        None => server.state.name().to_owned(),
    };
    table(columns, &cells(&state), width)
}

fn milliseconds(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

fn connection_table(all: &[&Connection], width: usize) -> Vec<String> {
    let cells = |of: &dyn Fn(&Connection) -> String| all.iter().map(|one| of(one)).collect::<Vec<_>>();
    let who = |one: &Connection| match &one.client {
        Some(client) => format!("{} ({})", shown(client), shown(&one.from)),
        None => shown(&one.from),
    };
    let columns = vec![
        Column::names("destination", cells(&|one| shown(&one.destination))),
        Column::names("from", cells(&who)),
        Column::numbers("received", 0, cells(&|one| bytes(one.received_bytes))),
        Column::numbers("sent", 1, cells(&|one| bytes(one.sent_bytes))),
        Column::numbers("since", 2, cells(&|one| duration(one.age_s))),
    ];
    table(columns, &cells(&|one| one.state.name().replace('_', " ")), width)
}

#[cfg(test)]
mod tests {
    use anabranch_proxy::Totals;
    use anabranch_proxy::status::{ConnectionState, LinkState, Listening, SeveralServers};

    use super::*;

    fn link(name: &str, state: LinkState) -> Link {
        Link {
            name: name.to_owned(),
            client: None,
            state,
            cost: Some(0),
            cap_bytes: None,
            cap_used_bytes: None,
            cap_renews_s: None,
            subflows: 2,
            sent_rate_bytes: 125_000,
            received_rate_bytes: 12_500_000,
            sent_bytes: 1_000_000,
            received_bytes: 500_000_000,
            share_percent: 62.5,
            rtt_us: Some(20_400),
            loss_percent: Some(0.2),
            retransmissions: 17,
        }
    }

    fn snapshot() -> Snapshot {
        let dead = Link { rtt_us: None, loss_percent: None, ..link("wwan0", LinkState::Dead) };
        let connection = Connection {
            number: 7,
            from: "127.0.0.1:50000".to_owned(),
            client: Some("\u{9b}2Jann".to_owned()),
            destination: "<b>\u{1b}]0;x\u{7}\u{202e}.example:443".to_owned(),
            origin: None,
            state: ConnectionState::HalfClosed,
            age_s: 63.0,
            sent_bytes: 512,
            received_bytes: 200_000_000,
        };
        Snapshot {
            role: Role::Client,
            release: "0.1.0".to_owned(),
            pid: 4_711,
            uptime_s: 7_440.0,
            transport: None,
            several: SeveralServers {
                server: Some("proxy.example:26228".to_owned()),
                ..SeveralServers::default()
            },
            listening: vec![Listening { door: "socks".to_owned(), address: "127.0.0.1:1080".to_owned() }],
            totals: Totals {
                connections: 3,
                failed: 1,
                sent_bytes: 5,
                received_bytes: 7_000,
                dropped_reports: 0,
                refused: 0,
            },
            links: vec![link("wlan0", LinkState::Up), dead],
            clients: Vec::new(),
            trunks: Vec::new(),
            open_connections: 30,
            connections: vec![connection],
            datagram_flows: 0,
            finished: Vec::new(),
        }
    }

    #[test]
    fn a_snapshot_fits_a_terminal_and_a_hostile_name_does_nothing_there() {
        let lines = lines(&snapshot(), 80);
        let text = lines.join("\n");
        assert!(lines[0].starts_with("client to proxy.example:26228, process 4711, up 2 h 04 min"), "{text}");
        let wlan0 = lines.iter().find(|line| line.starts_with("wlan0")).unwrap();
        for part in ["100.0 Mbit/s", "1.0 Mbit/s", "20.4 ms", "0.2 %", "62.5 %", "up"] {
            assert!(wlan0.contains(part), "{part} in {wlan0}");
        }
        let wwan0 = lines.iter().find(|line| line.starts_with("wwan0")).unwrap();
        assert!(wwan0.ends_with("dead") && wwan0.contains(" - "), "{wwan0}");
        assert!(text.contains("connections: 30 open, 3 ended (1 failed; 5 B sent, 7.0 kB received)"));
        assert!(text.contains("half closed") && text.contains("… and 29 more"), "{text}");
        assert!(lines.iter().all(|line| console::measure_text_width(line) <= 80), "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'), "{text:?}");
        let wide = super::lines(&snapshot(), WIDE).join("\n");
        assert!(
            wide.contains("<b>\\x1b]0;x\\x07\\u{202e}.example:443") && wide.contains("\\u{9b}2Jann"),
            "{wide}"
        );
        let empty =
            Snapshot { links: Vec::new(), connections: Vec::new(), open_connections: 0, ..snapshot() };
        assert!(super::lines(&empty, 80).join("\n").contains("links: none is used yet"));
    }
}
