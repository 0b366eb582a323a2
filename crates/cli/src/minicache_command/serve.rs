//! Runs `anabranch minicache serve`: the keeper, and the worker that it starts.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_algo::Time;
use anabranch_minicache::image::{Image, ImageError, Use};
use anabranch_minicache::keeper::{self, Keeper};
use anabranch_minicache::serve::{Event, Origins, Serving, Settings, patiently};
use anabranch_net::{Clock, Interest, Poller, WakeReceiver};
use serde::Serialize;

use super::args::Serve;
use super::failure::failure;
use crate::descriptors::raise_limit;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::signals::stop_signals;
use crate::stdout;
use crate::view::{printable, say};

/// The address at which the cache listens, as a line of JSON.
#[derive(Serialize)]
struct ListeningLine {
    address: String,
    url: String,
    /// The UDP address of mmTP, if there is one.
    mmtp: Option<String>,
}

/// Something that the user should know, as a line of JSON.
#[derive(Serialize)]
struct NoticeLine<'a> {
    text: &'a str,
}

/// Runs `anabranch minicache serve` until a signal ends it.
pub(super) fn serve(args: &Serve) -> Outcome {
    raise_limit();
    if args.worker.is_some() {
        return work(args);
    }
    json::end(args.json, run(args))
}

fn run(args: &Serve) -> Outcome {
    // What is wrong with the image or an origin is told once, and not by one worker after the other.
    let purpose = if args.origins.is_empty() { Use::Read } else { Use::Write };
    let (wake, stop) = stop_signals()?;
    if args.no_keeper {
        let socket = listen(args)?;
        let serving = start(args, &socket, purpose)?;
        listening(args, &socket, serving.mmtp_address())?;
        wait(&wake, &stop)?;
        drop(serving);
        return Ok(());
    }
    if args.mmtp.is_some_and(|address| address.port() == 0) {
        let says =
            "each serving process would have another port: --mmtp takes one, or --no-keeper goes with it";
        return Err(Failure::usage(says));
    }
    if let Some(origins) = Origins::new(args.origins.clone()) {
        origins.check()?;
    }
    Image::probe(&args.image, purpose).map_err(|error| failure(&args.image, &error))?;
    let socket = listen(args)?;
    let announced = socket.try_clone().map_err(system)?;
    let program = std::env::current_exe().map_err(system)?;
    let given = args.clone();
    let command = move |earlier| worker(&program, &given, earlier);
    let (is_json, is_quiet) = (args.json, args.quiet);
    let told = move |event: &keeper::Event<'_>| {
        let text = match event {
            keeper::Event::Said(bytes) => {
                stdout::tell(String::from_utf8_lossy(bytes));
                return;
            }
            keeper::Event::Died(status) => {
                format!("the serving process died ({status}); the next one has begun")
            }
            keeper::Event::NotStarted(error) => format!("the serving process cannot be started: {error}"),
        };
        tell(is_json, is_quiet, &text);
    };
    let keeper = Keeper::start(socket, command, told).map_err(system)?;
    listening(args, &announced, args.mmtp)?;
    wait(&wake, &stop)?;
    drop(keeper);
    Ok(())
}

/// Returns the command of a worker.
fn worker(program: &std::path::Path, args: &Serve, earlier: u64) -> Command {
    let mut command = Command::new(program);
    command.args(["minicache", "serve"]).arg(&args.image).arg(format!("--worker={earlier}"));
    command.args(args.origins.iter().map(|url| format!("--origin={url}")));
    command.args(args.mmtp.map(|address| format!("--mmtp={address}")));
    command.args(args.threads.map(|threads| format!("--threads={threads}")));
    command.args(args.json.then_some("--json")).args(args.quiet.then_some("--quiet"));
    command
}

/// Serves as a worker: on the socket that is standard input, until the keeper ends it.
fn work(args: &Serve) -> Outcome {
    let purpose = if args.origins.is_empty() { Use::Read } else { Use::Write };
    let socket =
        keeper::inherited().map_err(|e| Failure::usage(format!("standard input is no socket: {e}")))?;
    let serving = start(args, &socket, purpose)?;
    // The keeper gets Ctrl-C of the terminal too, and ends this process after its own output.
    let (wake, stop) = stop_signals()?;
    wait(&wake, &stop)?;
    drop(serving);
    Ok(())
}

fn listen(args: &Serve) -> Outcome<TcpListener> {
    keeper::listen(args.listen).map_err(|e| Failure::other(format!("{e}: choose another with --listen")))
}

fn start(args: &Serve, socket: &TcpListener, purpose: Use) -> Outcome<Serving> {
    let open = || Image::open(&args.image, purpose);
    let is_busy = |error: &ImageError| matches!(error, ImageError::Busy);
    let image = if args.worker.unwrap_or_default() > 0 { patiently(open, is_busy, true) } else { open() };
    let image = image.map_err(|error| failure(&args.image, &error))?;
    let settings = Settings {
        threads: args.threads.map(usize::from),
        restarts: args.worker.unwrap_or_default(),
        origins: Origins::new(args.origins.clone()),
        mmtp: args.mmtp,
    };
    let (is_json, is_quiet) = (args.json, args.quiet);
    let told = move |event: &Event| tell(is_json, is_quiet, &event.to_string());
    Serving::start(image, socket, settings, told).map_err(system)
}

fn tell(is_json: bool, is_quiet: bool, text: &str) {
    match (is_json, is_quiet) {
        (true, _) => json::put("notice", &NoticeLine { text }),
        (false, false) => say(&format!("anabranch: {}", printable(text))),
        (false, true) => {}
    }
}

fn listening(args: &Serve, socket: &TcpListener, mmtp: Option<SocketAddr>) -> Outcome {
    let address = socket.local_addr().map_err(system)?.to_string();
    let url = format!("http://{address}/");
    let mmtp = mmtp.map(|address| address.to_string());
    if args.json {
        json::put("listening", &ListeningLine { address, url, mmtp });
        return Ok(());
    }
    stdout::line(url);
    mmtp.into_iter().for_each(|address| stdout::line(format!("mmTP: {address}")));
    Ok(())
}

fn wait(wake: &WakeReceiver, stop: &AtomicBool) -> Outcome {
    let mut poller = Poller::new(Clock::start());
    while !stop.load(Ordering::Relaxed) {
        poller.wait([(wake.as_fd(), Interest::Read)], Time::NEVER).map_err(system)?;
        wake.drain();
    }
    Ok(())
}

fn system(error: std::io::Error) -> Failure {
    Failure::other(format!("system error: {error}"))
}
