//! Runs `anabranch daemon`: a queue of downloads for aria2's front ends. The crate `anabranch-daemon` does
//! the work.

mod aria2c;

use std::fs::DirBuilder;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anabranch_daemon::daemon::{self, Settings};
use anabranch_daemon::day_limit::DayLimit;
use anabranch_daemon::destination::Base;
use anabranch_daemon::gid::Gid;
use anabranch_daemon::job::{End, Options, Status};
use anabranch_daemon::queue::Notice;
use anabranch_daemon::rpc::Rpc;
use anabranch_daemon::server::Server;
use anabranch_daemon::token::Token;
use anabranch_net::via::{self, Via};
use anabranch_net::{Clock, Interest, Poller, WakeReceiver};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::signals::stop_signals;
use crate::state_dir::state_dir;
use crate::stdout;
use crate::view::{printable, say};

/// aria2's port.
const PORT: u16 = 6800;
/// How long the end waits for transfers, which keep what has arrived within some milliseconds.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// Keep a queue of downloads, for AriaNg, Motrix and what else speaks to aria2
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Keep a queue of downloads, for AriaNg, Motrix and what else speaks to aria2.\n\n\
        Answers aria2's JSON-RPC over HTTP and WebSocket on this machine alone, to programs with the token, \
        which is made at the first start and kept in a file. Each download comes from all of its URIs and \
        over all links at once, as with `anabranch get`. The queue is on disk: after a kill or a reboot it \
        goes on where it was. Torrents and magnet links are refused. Ctrl-C ends it; what has arrived is \
        kept.",
    after_help = "Examples:\n  \
        anabranch daemon --dir ~/Downloads\n  \
        anabranch daemon --dir /srv/files -j 2 --limit 5M --limit 1M@08:00-18:00\n  \
        anabranch daemon --rpc-allow-origin-all    # for AriaNg from another site or a file\n\n\
        Then, in AriaNg's settings: address 127.0.0.1, port 6800, and the token as the secret. By hand:\n  \
        curl http://127.0.0.1:6800/jsonrpc -d '{\"id\":1,\"method\":\"aria2.addUri\",\n    \
        \"params\":[\"token:TOKEN\",[\"https://a.example/f.iso\",\"https://b.example/f.iso\"]]}'",
    args_conflicts_with_subcommands = true
)]
pub struct Daemon {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub run: Run,

    /// What to do; without it, to run.
    #[command(subcommand)]
    pub command: Option<DaemonCommand>,
}

/// The commands beside the daemon itself.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum DaemonCommand {
    #[command(name = "aria2c")]
    Aria2c(aria2c::Aria2c),
}

/// The options of the daemon.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// The directory that downloads go into, and do not leave
    #[arg(short, long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// Let requests name any other directory, and hidden files
    #[arg(long)]
    pub allow_any_dir: bool,

    /// The directory of the queue and the token; without it, `anabranch/daemon` in the directory for state
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state: Option<PathBuf>,

    /// Address to listen on. Port 0 takes a free one. A program with the token can
    /// have anything fetched, and HTTP does not hide it: other addresses than this machine's own are for
    /// networks that you trust
    #[arg(short, long, value_name = "ADDR:PORT",
        default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT))]
    pub listen: SocketAddr,

    /// The file with the token, any text without spaces; it is made if it is not there. Without it: `token`
    /// beside the queue
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,

    /// Let pages of any site read answers: AriaNg from another site or from a file needs it. They need the
    /// token, too
    #[arg(long)]
    pub rpc_allow_origin_all: bool,

    /// How many downloads run at a time
    #[arg(short = 'j', long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=500))]
    pub at_once: u16,

    /// Receive no faster than this, all downloads together; with a time, at that time of each day: 5M,
    /// 1M@08:00-18:00, none@22:00-06:00. May be given several times: the first whose time it is holds
    #[arg(long, value_name = "RATE[@FROM-TO]")]
    pub limit: Vec<DayLimit>,

    #[arg(long, value_name = via::VALUE, help = via::HELP)]
    #[expect(missing_docs, reason = "the help is one text for every command")]
    pub via: Vec<Via>,

    /// Print what happens as JSON, one object a line
    #[arg(long)]
    pub json: bool,

    /// Say nothing of downloads on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

/// Where the daemon listens, as a line of JSON.
#[derive(Serialize)]
struct ListeningLine {
    addresses: Vec<SocketAddr>,
    /// The URLs of the methods.
    rpc: Vec<String>,
    token_file: PathBuf,
    /// How many downloads the queue has from earlier runs, without those that have ended.
    waiting: usize,
}

/// What has happened to a download, as a line of JSON.
#[derive(Serialize)]
struct DownloadLine {
    gid: Gid,
    status: &'static str,
    /// The path of the file; empty while it is not known.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<End>,
}

/// Runs `anabranch daemon` until a signal or a request ends it.
///
/// # Errors
/// 2 if a directory or an option is wrong; 1 if the daemon cannot start.
pub fn daemon(args: &Daemon) -> Outcome {
    match &args.command {
        Some(DaemonCommand::Aria2c(args)) => aria2c::run(args),
        None => json::end(args.run.json, run(&args.run)),
    }
}

fn run(args: &Run) -> Outcome {
    crate::descriptors::raise_limit();
    via::check_words(&args.via).map_err(|e| Failure::usage(e.to_string()))?;
    let (wake, stop) = stop_signals()?;
    let state = own_directory(args)?;
    let token_file = args.token_file.clone().unwrap_or_else(|| state.join("token"));
    let token = Token::load_or_create(&token_file)
        .map_err(|e| Failure::usage(format!("the token file {}: {e}", show(&token_file))).at(&token_file))?;
    let base = Base::new(&args.dir, args.allow_any_dir);
    let base =
        base.map_err(|e| Failure::usage(format!("the directory {}: {e}", show(&args.dir))).at(&args.dir))?;
    let settings = Settings {
        base,
        state,
        via: args.via.iter().map(Via::to_string).collect(),
        counts: state_dir(),
        limits: args.limit.clone(),
        options: Options::from([("max-concurrent-downloads".to_owned(), args.at_once.to_string())]),
        is_insecure: false,
    };
    let daemon = daemon::Daemon::start(settings).map_err(|e| Failure::other(e.to_string()))?;
    tell_downloads(&daemon, args.json, args.quiet)?;
    let rpc = Rpc::new(daemon.clone(), token.clone());
    let server = Server::start(&[args.listen], rpc, args.rpc_allow_origin_all)
        .map_err(|e| Failure::other(e.to_string()))?;
    tell_listening(&server, &daemon, &token, &token_file, args.json);
    wait(&daemon, &wake, &stop)?;
    drop(server);
    daemon.end(END_PATIENCE);
    Ok(())
}

/// Returns the directory of the queue, and makes it if it is missing.
fn own_directory(args: &Run) -> Outcome<PathBuf> {
    let unknown = || Failure::usage("HOME is not set: name a directory for the queue with --state");
    let dir = match &args.state {
        Some(dir) => dir.clone(),
        None => state_dir().ok_or_else(unknown)?.join("daemon"),
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|e| Failure::usage(format!("cannot make {}: {e}", show(&dir))).at(&dir))?;
    Ok(dir)
}

fn tell_listening(server: &Server, daemon: &daemon::Daemon, token: &Token, token_file: &Path, is_json: bool) {
    let addresses = server.addresses().to_vec();
    let rpc: Vec<String> = addresses.iter().map(|address| format!("http://{address}/jsonrpc")).collect();
    if is_json {
        let waiting = daemon.look(|state| state.queue.counts()[..2].iter().sum());
        json::put("listening", &ListeningLine { addresses, rpc, token_file: token_file.to_owned(), waiting });
        return;
    }
    rpc.iter().for_each(|url| stdout::line(format!("RPC for AriaNg, Motrix and others: {url}")));
    stdout::line(format!("its token: {} (in {})", token.reveal(), show(token_file)));
    addresses.iter().for_each(|at| stdout::line(format!("page: http://{at}/#{}", token.reveal())));
}

/// Tells of downloads that have begun and ended, on a thread of its own.
fn tell_downloads(daemon: &daemon::Daemon, is_json: bool, is_quiet: bool) -> Outcome {
    let (notices, daemon) = (daemon.notices(), daemon.clone());
    let tell =
        move || notices.for_each(|(notice, gid)| tell_download(&daemon, notice, gid, is_json, is_quiet));
    let thread = thread::Builder::new().name("notices".into()).spawn(tell);
    thread.map(drop).map_err(|e| Failure::other(format!("cannot start a thread: {e}")))
}

fn tell_download(daemon: &daemon::Daemon, notice: Notice, gid: Gid, is_json: bool, is_quiet: bool) {
    let status = match notice {
        Notice::Start => Status::Active,
        Notice::Pause => Status::Paused,
        Notice::Stop => Status::Removed,
        Notice::Complete => Status::Complete,
        Notice::Error => Status::Error,
    };
    let job = daemon.look(|state| state.queue.job(gid).cloned());
    let path = job.as_ref().map(|job| job.known.path.clone()).unwrap_or_default();
    let error = job.and_then(|job| job.end).filter(|_| status == Status::Error);
    if is_json {
        json::put("download", &DownloadLine { gid, status: status.name(), path, error });
    } else if !is_quiet && matches!(status, Status::Complete | Status::Error) {
        let what = error.map_or(path, |end| end.message);
        say(&format!("anabranch: {gid} {}: {}", status.name(), printable(&what)));
    }
}

/// Waits for a signal, or for a request that ends the daemon.
fn wait(daemon: &daemon::Daemon, wake: &WakeReceiver, stop: &Arc<AtomicBool>) -> Outcome {
    let (asked, flag, waker) = (daemon.clone(), Arc::clone(stop), wake.waker());
    let follow = move || {
        asked.wait_for_end();
        flag.store(true, Ordering::Relaxed);
        waker.wake();
    };
    let thread = thread::Builder::new().name("end".into()).spawn(follow);
    thread.map_err(|e| Failure::other(format!("cannot start a thread: {e}")))?;
    let mut poller = Poller::new(Clock::start());
    while !stop.load(Ordering::Relaxed) {
        let waited = poller.wait([(wake.as_fd(), Interest::Read)], anabranch_algo::Time::NEVER);
        waited.map_err(|e| Failure::other(format!("cannot wait for signals: {e}")))?;
        wake.drain();
    }
    Ok(())
}
