//! Runs `anabranch cache`: one verified cache for everything that speaks HTTP. The crate `anabranch-cache`
//! does the work.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anabranch_algo::Time;
use anabranch_cache::config::{Config, FILE_BYTES_MAX};
use anabranch_cache::gateway::{Event, Gateway};
use anabranch_net::{Clock, Interest, Poller};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::json::{self, End};
use crate::names::show;
use crate::signals::stop_signals;
use crate::stdout;
use crate::view::{printable, say};

/// Cache and verify what pip, apt, Nix and others fetch, from all mirrors at once
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Cache and verify what pip, apt, Nix and others fetch, from all mirrors at once.\n\n\
        Reads FILE, listens where it says, and prints the URL of each route, which a client is given in \
        place of its server. An object that is asked for comes from all sources of its route at once, over \
        all links, while the client already reads it; it is verified by the hash that is in its name, and \
        kept. http://ADDRESS/status has the numbers, /metrics has them for Prometheus. Ctrl-C ends it.",
    after_help = "Example of FILE:\n  \
        directory = \"/var/cache/anabranch\"\n  \
        capacity = \"50GB\"\n\n  \
        [[route]]\n  \
        at = \"/pypi\"\n  \
        preset = \"pypi\"\n  \
        sources = [\"https://pypi.org/simple\"]\n\n\
        Then:\n  \
        anabranch cache FILE\n  \
        pip install --index-url http://127.0.0.1:8470/pypi/ requests"
)]
pub struct Cache {
    /// The settings, in TOML: docs/cache.md has every key and recipes
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,

    /// Only check FILE
    #[arg(long)]
    pub check: bool,

    /// Share objects that have a hash with caches of this LAN, as `[neighbours]` in FILE does
    #[arg(long)]
    pub neighbours: bool,

    /// Print what happens as JSON, one object a line
    #[arg(long)]
    pub json: bool,

    /// Say nothing of wrong bytes, damage and failed requests on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

/// The addresses at which the cache listens, as a line of JSON.
#[derive(Serialize)]
struct ListeningLine {
    addresses: Vec<String>,
    /// The URL of each route, in the order of the file's paths, the longest first.
    routes: Vec<String>,
}

/// Something that the user should know, as a line of JSON.
#[derive(Serialize)]
struct NoticeLine {
    text: String,
}

/// Runs `anabranch cache` until a signal ends it.
///
/// # Errors
/// 2 if the settings are wrong, 1 if the cache cannot start.
pub fn cache(args: &Cache) -> Outcome {
    let outcome = run(args);
    if args.json && !args.check {
        json::put("summary", &End::new(outcome.as_ref().err()));
    }
    outcome
}

fn run(args: &Cache) -> Outcome {
    let mut config = load(&args.config)?;
    if args.neighbours {
        config.neighbours.get_or_insert_default();
    }
    if args.check {
        return Ok(());
    }
    let (wake, stop) = stop_signals()?;
    let paths: Vec<String> = config.routes.iter().map(|route| route.path()).collect();
    let (is_json, is_quiet) = (args.json, args.quiet);
    let tell = move |event: &Event| match (is_json, is_quiet) {
        (true, _) => json::put("notice", &NoticeLine { text: event.to_string() }),
        (false, false) => say(&format!("anabranch: {}", printable(&event.to_string()))),
        (false, true) => {}
    };
    let gateway = Gateway::start(config, tell).map_err(|e| Failure::other(e.to_string()))?;
    let addresses: Vec<String> = gateway.addresses().iter().map(ToString::to_string).collect();
    let routes: Vec<String> = addresses
        .iter()
        .flat_map(|address| paths.iter().map(move |path| format!("http://{address}{path}")))
        .collect();
    match args.json {
        true => json::put("listening", &ListeningLine { addresses, routes }),
        false => routes.iter().for_each(|url| stdout::line(printable(url))),
    }
    let mut poller = Poller::new(Clock::start());
    while !stop.load(Ordering::Relaxed) {
        let waited = poller.wait([(wake.as_fd(), Interest::Read)], Time::NEVER);
        waited.map_err(|e| Failure::other(format!("cannot wait for signals: {e}")))?;
        wake.drain();
    }
    Ok(())
}

/// Reads the settings.
fn load(path: &Path) -> Outcome<Config> {
    let cannot = |e| Failure::usage(format!("cannot read {}: {e}", show(path))).at(path);
    let mut text = String::new();
    File::open(path).map_err(cannot)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let says = format!("{} is longer than {FILE_BYTES_MAX} bytes", show(path));
        return Err(Failure::usage(says).at(path));
    }
    Config::parse(&text).map_err(|e| Failure::usage(format!("{}: {e}", show(path))).at(path))
}
