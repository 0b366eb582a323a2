//! `anabranch serve`: offers files and directories until Ctrl-C.

use std::net::SocketAddr;

use anabranch::serve::{Offer, Stats};
use anabranch::{Control, ErrorKind, Event, text};
use serde::Serialize;

use crate::args::Serve;
use crate::exit::{Failure, Outcome};
use crate::hash_line;
use crate::hints::with_options;
use crate::json::{self, End};
use crate::network_options::scope_key;
use crate::signals::stop_on_signals;
use crate::stdout;
use crate::view::{Lines, can_redraw, say};

/// The number of reports between two plain lines when there is no terminal.
const PLAIN_EVERY: u64 = 60;

/// Serves the paths that `args` name.
///
/// # Errors
/// If a socket cannot be bound or a path cannot be read.
pub fn serve(args: &Serve) -> Outcome {
    let mut view = View::new(args);
    let served = run(args, &mut view);
    view.lines.draw(&[]);
    let stats = served.as_ref().ok().cloned().flatten();
    if args.json {
        let stats = stats.unwrap_or_default();
        let end = End::new(served.as_ref().err());
        json::put("summary", &Summary { elapsed_s: stats.elapsed_s, stats, end });
    } else if let Some(stats) = stats {
        view.totals(&stats);
    }
    served.map(drop)
}

/// Serves until Ctrl-C. Returns `None` if that came before anything was served.
fn run(args: &Serve, view: &mut View) -> Outcome<Option<Stats>> {
    let mut serve = anabranch::Serve::new().stopped_by(&stop_on_signals()?);
    for path in &args.paths {
        serve = serve.path(path)?;
    }
    serve = args.listen.iter().fold(serve, |serve, address| serve.listen(*address));
    serve = args.http.iter().fold(serve, |serve, address| serve.http(*address));
    if let Some(rate) = args.limit {
        serve = serve.limit(rate);
    }
    if args.no_cache {
        serve = serve.cache(None);
    }
    if let (Some(name), Some(file)) = (&args.publish, &args.key) {
        serve = serve.publish(&args.network.place()?, name.clone(), scope_key(file)?.into());
    } else if args.network.domain.is_some() {
        return Err(Failure::usage("--domain alone does nothing here: name the PATH with --publish"));
    }
    let served = serve.run(|event| {
        view.show(event);
        Control::Continue
    });
    match served {
        Ok(stats) => Ok(Some(stats)),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// An offer, as a line of JSON.
#[derive(Serialize)]
struct OfferLine {
    uri: String,
    content: String,
    length: u64,
    path: String,
    collection: bool,
    /// The URLs of the same content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    http: Vec<String>,
    /// The URLs of the Metalink of a directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metalinks: Vec<String>,
}

/// The addresses at which the source listens, as a line of JSON.
#[derive(Serialize)]
struct ListeningLine {
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    http: Vec<String>,
}

/// The final counters and the end, as a line of JSON.
#[derive(Serialize)]
struct Summary {
    #[serde(flatten)]
    stats: Stats,
    elapsed_s: f64,
    #[serde(flatten)]
    end: End,
}

/// The view of a source.
struct View {
    json: bool,
    quiet: bool,
    terminal: bool,
    lines: Lines,
    /// Whether files that were found in directories are listed.
    files: bool,
    offers: u64,
    /// The offers of the paths on the command line. Their URIs come last, where people look for them.
    named: Vec<Offer>,
    reports: u64,
}

impl View {
    fn new(args: &Serve) -> Self {
        Self {
            json: args.json,
            quiet: args.quiet,
            terminal: can_redraw(),
            lines: Lines::default(),
            files: args.list_files,
            offers: 0,
            named: Vec::new(),
            reports: 0,
        }
    }

    fn show(&mut self, event: Event) {
        match event {
            Event::Hashing(progress) if !self.quiet && !self.json => {
                hash_line::draw(&mut self.lines, &progress);
            }
            Event::Notice(notice) => {
                self.lines.draw(&[]);
                say(&format!("anabranch: {}", with_options(&notice)));
            }
            Event::Offer(offer) => {
                self.lines.draw(&[]);
                self.offer(offer);
            }
            Event::Listening { addresses, http } => self.listening(&addresses, &http),
            Event::Stats { stats, rate_bytes } => self.stats(&stats, rate_bytes),
            _ => {}
        }
    }

    fn offer(&mut self, offer: Offer) {
        self.offers += 1;
        if self.json {
            let line = OfferLine {
                uri: offer.uri,
                content: offer.content.to_string(),
                length: offer.content.length,
                path: offer.path.to_string_lossy().into_owned(),
                collection: offer.directory,
                http: offer.http.concat(),
                metalinks: offer.metalinks.concat(),
            };
            return json::put("offer", &line);
        }
        if offer.named {
            self.named.push(offer);
        } else if self.files {
            say_offer(&offer);
        }
    }

    fn listening(&self, addresses: &[SocketAddr], http: &[SocketAddr]) {
        let text = |addresses: &[SocketAddr]| addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        let (addresses, http) = (text(addresses), text(http));
        if self.json {
            return json::put("listening", &ListeningLine { addresses, http });
        }
        if !self.quiet {
            let unlisted = self.offers - self.named.len() as u64;
            let (what, them) = match self.named.len() {
                1 => ("1 path".into(), "it"),
                n => (format!("{n} paths"), "them"),
            };
            let of_files = match unlisted {
                0 => String::new(),
                1 => format!(" and 1 file in {them}"),
                _ => format!(" and {unlisted} files in {them}"),
            };
            let by_http = match http.is_empty() {
                true => String::new(),
                false => format!(", by HTTP at {}", http.join(" and ")),
            };
            say(&format!("{what}{of_files} at {}{by_http}; Ctrl-C ends it", addresses.join(" and ")));
            if unlisted > 0 && !self.files {
                say("With --list-files the URIs of the files are printed, too");
            }
            let (directory, file) = (|offer: &&Offer| offer.directory, |offer: &&Offer| !offer.directory);
            if let Some(url) = self.named.iter().find(directory).and_then(Offer::url) {
                say(&format!("Look at it with a browser: {url}"));
            }
            if let Some(url) = self.named.iter().find(file).and_then(Offer::url) {
                say(&format!("Fetch with: curl -O {url}"));
            }
            say("Fetch with: anabranch get 'URI' (in quotes: it contains & and ?)");
        }
        self.named.iter().for_each(say_offer);
    }

    fn stats(&mut self, stats: &Stats, rate_bytes: u64) {
        self.reports += 1;
        if self.json {
            json::put("counters", stats);
        } else if !self.quiet && self.terminal {
            self.lines.draw(&picture(stats, rate_bytes));
        } else if !self.quiet && self.reports.is_multiple_of(PLAIN_EVERY) && stats.all_requests() > 0 {
            picture(stats, rate_bytes).iter().for_each(|line| self.lines.print(line));
        }
    }

    /// Prints the final counters.
    fn totals(&mut self, stats: &Stats) {
        if self.quiet {
            return;
        }
        self.lines.print(&format!(
            "sent {} in {} packets for {} requests in {}",
            text::bytes(stats.sent_bytes),
            stats.sent_packets,
            stats.requests,
            text::duration(stats.elapsed_s)
        ));
        if stats.http_requests > 0 {
            let sent = text::bytes(stats.http_bytes);
            self.lines.print(&format!("sent {sent} for {} requests by HTTP", stats.http_requests));
        }
        let problems = stats.problems();
        if !problems.is_empty() {
            self.lines.print(&problems);
        }
    }
}

/// Prints the URI of an offer. If people read the output, it also prints one URL for each --http. The URL of
/// a directory leads to its Metalink, because the directory itself is a web page.
fn say_offer(offer: &Offer) {
    stdout::line(&offer.uri);
    let urls = if offer.directory { &offer.metalinks } else { &offer.http };
    urls.iter().filter_map(|urls| urls.first()).for_each(stdout::line);
}

fn picture(stats: &Stats, rate_bytes: u64) -> Vec<String> {
    let mut line = format!(
        "{}  {} sent  {} requests  {} in the last minute",
        text::rate(rate_bytes),
        text::bytes(stats.all_bytes()),
        stats.all_requests(),
        match stats.peers {
            1 => "1 address".into(),
            n => format!("{n} addresses"),
        }
    );
    match stats.http_connections {
        0 => {}
        1 => line += ", 1 HTTP connection",
        n => line += &format!(", {n} HTTP connections"),
    }
    let problems = stats.problems();
    if problems.is_empty() { vec![line] } else { vec![line, problems] }
}
