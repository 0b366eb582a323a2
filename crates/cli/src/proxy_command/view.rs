//! Shows the events of a proxy as lines for people, or as JSON objects.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;

use anabranch::text;
use anabranch_proxy::config::Changes;
use anabranch_proxy::status::{Ended, Token};
use anabranch_proxy::{Door, Event, Totals};
use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::json::{self, End};
use crate::stdout;
use crate::view::say;

/// Says how events are shown.
pub(super) struct View {
    pub(super) json: bool,
    pub(super) quiet: bool,
}

#[derive(Serialize)]
struct ListeningLine {
    door: &'static str,
    address: String,
    /// The file with the token of the status page.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<String>,
}

#[derive(Serialize)]
struct TrunkLine<'a> {
    up: bool,
    peer: Option<String>,
    client: Option<&'a str>,
    transport: Option<&'static str>,
    /// The reason why the trunk is down or has only one path.
    note: Option<&'a str>,
    lost_streams: u32,
}

#[derive(Serialize)]
struct NoticeLine<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct ReloadLine<'a> {
    /// The names of settings that changed at once; `restart` has those that need a new start.
    live: &'a [&'static str],
    restart: &'a [&'static str],
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Checked<'a> {
    settings: Option<&'a str>,
    #[serde(flatten)]
    end: End,
}

#[derive(Serialize)]
struct Summary {
    connections: u64,
    failed: u64,
    sent_bytes: u64,
    received_bytes: u64,
    dropped_reports: u64,
    refused: u64,
    #[serde(flatten)]
    end: End,
}

fn of(client: Option<&str>) -> String {
    client.map_or_else(String::new, |name| format!("{name} "))
}

impl View {
    pub(super) fn show(&self, event: &Event) {
        if self.json {
            self.put(event);
        } else if !self.quiet {
            say(&line(event));
        }
    }

    #[expect(clippy::unused_self, reason = "the pair of `say`")]
    fn put(&self, event: &Event) {
        match event {
            Event::Listening { door, address } => {
                let (door, address) = (door.name(), address.to_string());
                json::put("listening", &ListeningLine { door, address, token_file: None });
            }
            Event::TrunkUp { peer, client, transport, note } => json::put(
                "trunk",
                &TrunkLine {
                    up: true,
                    peer: Some(peer.to_string()),
                    client: client.as_deref(),
                    transport: Some(transport.name()),
                    note: note.as_deref(),
                    lost_streams: 0,
                },
            ),
            Event::TrunkDown { peer, client, why, lost_streams } => json::put(
                "trunk",
                &TrunkLine {
                    up: false,
                    peer: peer.map(|peer| peer.to_string()),
                    client: client.as_deref(),
                    transport: None,
                    note: Some(why),
                    lost_streams: *lost_streams,
                },
            ),
            Event::Finished(finished) => json::put("connection", &Ended::from(finished)),
            Event::Notice(text) => json::put("notice", &NoticeLine { text }),
        }
    }

    /// Shows the address of the status page. Its token is only shown on a terminal, so that it is in no log.
    pub(super) fn page(&self, address: SocketAddr, token: &Token, file: &Path) {
        if self.json {
            let (address, token_file) = (address.to_string(), Some(file.display().to_string()));
            json::put("listening", &ListeningLine { door: "status", address, token_file });
        } else if !self.quiet && std::io::stderr().is_terminal() {
            say(&format!("status: http://{address}/#token={}", token.reveal()));
        } else if !self.quiet {
            say(&format!("status: http://{address}/#token=… (the token is in {})", file.display()));
        }
        if !address.ip().is_loopback() {
            self.notice(&format!(
                "whoever is between here and {address} can read the page's token and all it shows"
            ));
        }
    }

    /// Shows a message.
    pub(super) fn notice(&self, text: &str) {
        self.show(&Event::Notice(text.to_owned()));
    }

    /// Shows the result of `--check`: the settings in force, as a file.
    pub(super) fn checked(&self, settings: Outcome<String>) -> Outcome {
        if self.json {
            let settings_text = settings.as_ref().ok().map(String::as_str);
            json::put(
                "summary",
                &Checked { settings: settings_text, end: End::new(settings.as_ref().err()) },
            );
        } else if let (Ok(text), false) = (&settings, self.quiet) {
            stdout::line(text.trim_end());
        }
        settings.map(drop)
    }

    /// Shows the result of a reload.
    pub(super) fn reloaded(&self, changes: &Outcome<Changes>) {
        let none = Changes::default();
        let Changes { live, restart } = changes.as_ref().unwrap_or(&none);
        let error = changes.as_ref().err().map(|failure| failure.message.as_str());
        if self.json {
            json::put("reload", &ReloadLine { live, restart, error });
            return;
        }
        let list = |names: &[&str]| names.join(", ");
        let text = match (error, live.is_empty(), restart.is_empty()) {
            (Some(error), ..) => format!("not reloaded, all stays as it is: {error}"),
            (None, true, true) => "reloaded: nothing has changed".to_owned(),
            (None, _, true) => format!("reloaded: {}", list(live)),
            (None, true, _) => format!("not changed before it starts again: {}", list(restart)),
            (None, ..) => format!("reloaded: {}; not before it starts again: {}", list(live), list(restart)),
        };
        if error.is_some() || !self.quiet {
            say(&format!("anabranch: {text}"));
        }
    }

    /// Shows the end of the role.
    pub(super) fn end(&self, ended: Outcome<Totals>) -> Outcome {
        let totals = ended.as_ref().ok().copied().unwrap_or_default();
        if self.json {
            let summary = Summary {
                connections: totals.connections,
                failed: totals.failed,
                sent_bytes: totals.sent_bytes,
                received_bytes: totals.received_bytes,
                dropped_reports: totals.dropped_reports,
                refused: totals.refused,
                end: End::new(ended.as_ref().err()),
            };
            json::put("summary", &summary);
        } else if !self.quiet && ended.is_ok() {
            say(&format!(
                "{} connections, {} sent, {} received",
                totals.connections,
                text::bytes(totals.sent_bytes),
                text::bytes(totals.received_bytes)
            ));
        }
        ended.map(drop).map_err(|failure: Failure| failure)
    }
}

/// Writes an event as a line for people.
fn line(event: &Event) -> String {
    match event {
        Event::Listening { door: Door::Programs, address } => {
            format!("programs: socks5h://{address} or http://{address} (curl -x socks5h://{address} …)")
        }
        Event::Listening { door: Door::Socks, address } => {
            format!("programs: socks5h://{address} (curl -x socks5h://{address} …)")
        }
        Event::Listening { door: Door::Http, address } => {
            format!("programs: http://{address} (https_proxy=http://{address} …)")
        }
        Event::Listening { door: Door::Transparent, address } => {
            format!("programs: whatever is redirected to {address}")
        }
        Event::Listening { door: Door::Trunks, address } => format!("clients: {address}; Ctrl-C ends it"),
        Event::TrunkUp { peer, client, transport, note } => {
            let note = note.as_deref().map_or_else(String::new, |note| format!(": {note}"));
            format!("{}{peer}: connected by {}{note}", of(client.as_deref()), transport.name())
        }
        Event::TrunkDown { peer, client, why, lost_streams } => {
            let peer = peer.map_or_else(|| "server".to_owned(), |peer| peer.to_string());
            let lost = match lost_streams {
                0 => String::new(),
                n => format!("; {n} connections were reset"),
            };
            format!("{}{peer}: {why}{lost}", of(client.as_deref()))
        }
        Event::Finished(finished) => {
            let ended = Ended::from(finished);
            let error = ended.error.map_or_else(String::new, |error| format!(": {error}"));
            format!(
                "{}{} {} sent, {} received in {}{error}",
                of(finished.client.as_deref()),
                finished.destination,
                text::bytes(finished.sent_bytes),
                text::bytes(finished.received_bytes),
                text::duration(finished.duration_s)
            )
        }
        Event::Notice(text) => format!("anabranch: {text}"),
    }
}
