//! `anabranch daemon aria2c`: runs a command line of `aria2c`, for programs and scripts that call it.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anabranch_daemon::command_line::{CommandLine, read_input};
use anabranch_daemon::daemon::{Daemon, Settings};
use anabranch_daemon::destination::Base;
use anabranch_daemon::gid::Gid;
use anabranch_daemon::job::{End, Job, Options, Source};
use anabranch_daemon::queue::NewJob;
use clap::Args;

use super::END_PATIENCE;
use crate::exit::{Code, Failure, Outcome};
use crate::names::show;
use crate::signals::stop_on_signals;
use crate::stdout;
use crate::view::{printable, say};

/// How often downloads that have ended are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The most bytes of an input file.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Run a command line of aria2c: for apt-fast, yt-dlp and scripts
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Run a command line of aria2c: for apt-fast, yt-dlp and scripts.\n\n\
        Understands aria2c's options and input files. What changes the file is obeyed or refused; what says \
        only how bytes are moved (-x, -s, -k, --file-allocation and others) is accepted without effect. \
        Several URIs on the command line are mirrors of one file, as with aria2c. A file that is there \
        already is kept if its hash is right. The exit status is anabranch's.",
    after_help = "A program that is called aria2c:\n  \
        printf '#!/bin/sh\\nexec anabranch daemon aria2c \"$@\"\\n' > ~/bin/aria2c\n  \
        chmod +x ~/bin/aria2c\n\n\
        Examples:\n  \
        anabranch daemon aria2c -x 8 -o f.iso https://a.example/f.iso https://b.example/f.iso\n  \
        anabranch daemon aria2c -j 4 -i list.txt -d /srv/files",
    disable_help_flag = true
)]
pub struct Aria2c {
    /// Options and URIs, as aria2c takes them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub arguments: Vec<String>,
}

/// Runs the command line.
///
/// # Errors
/// 2 if it makes no sense, and the exit status of the last download that failed.
pub(super) fn run(args: &Aria2c) -> Outcome {
    crate::descriptors::raise_limit();
    let line = CommandLine::read(args.arguments.iter().cloned()).map_err(Failure::usage)?;
    if line.wants_version {
        stdout::line(format!("aria2 version 1.37.0 (anabranch {})", env!("CARGO_PKG_VERSION")));
        return Ok(());
    }
    if line.wants_help {
        let mut help = <Aria2c as Args>::augment_args(clap::Command::new("anabranch daemon aria2c"));
        return stdout::print(help.render_long_help().to_string());
    }
    let jobs = jobs(&line)?;
    let dir = line.dir.as_deref().map_or(Path::new("."), Path::new);
    let cannot = |e| Failure::target(format!("cannot use the directory {}: {e}", show(dir))).at(dir);
    fs::create_dir_all(dir).map_err(cannot)?;
    let base = Base::new(dir, true).map_err(cannot)?;
    // What has arrived is beside each file, so the queue itself need not outlive this run.
    let state = tempfile::tempdir().map_err(|e| Failure::other(format!("no temporary directory: {e}")))?;
    let mut options = line.options.clone();
    options.insert("max-download-result".to_owned(), jobs.len().to_string());
    let stop = stop_on_signals()?;
    let settings = Settings {
        base,
        state: state.path().to_owned(),
        via: Vec::new(),
        counts: None,
        limits: Vec::new(),
        options,
        is_insecure: line.is_insecure,
    };
    let daemon = Daemon::start(settings).map_err(|e| Failure::other(e.to_string()))?;
    for (uris, _) in &jobs {
        let source = Source::Uris(uris.clone());
        daemon.check(&source).map_err(Failure::usage)?;
    }
    let failure = fetch(&daemon, jobs, &stop.flag(), line.is_quiet);
    daemon.end(END_PATIENCE);
    if stop.is_stopped() {
        return Err(Failure::new(Code::Interrupted, "interrupted: what has arrived is kept"));
    }
    failure.map_or(Ok(()), Err)
}

/// Returns the downloads of the command line and of its input file.
fn jobs(line: &CommandLine) -> Outcome<Vec<(Vec<String>, Options)>> {
    let mut jobs: Vec<_> = line.files.iter().map(|uris| (uris.clone(), line.options.clone())).collect();
    if let Some(name) = &line.input_file {
        let cannot = |e| Failure::usage(format!("cannot read {}: {e}", show(name)));
        let mut text = String::new();
        let read = match name.as_str() {
            "-" => std::io::stdin().lock().take(INPUT_BYTES_MAX).read_to_string(&mut text),
            name => {
                let file = File::open(name).map_err(cannot)?;
                file.take(INPUT_BYTES_MAX).read_to_string(&mut text)
            }
        };
        read.map_err(cannot)?;
        jobs.extend(read_input(&text, &line.options).map_err(Failure::usage)?);
    }
    if jobs.is_empty() {
        return Err(Failure::usage("nothing to fetch: no URI is named"));
    }
    Ok(jobs)
}

/// Runs the downloads to their ends, and tells of each. Returns the failure of the last one that failed.
fn fetch(
    daemon: &Daemon,
    jobs: Vec<(Vec<String>, Options)>,
    stop: &AtomicBool,
    is_quiet: bool,
) -> Option<Failure> {
    let count = jobs.len();
    for (number, (uris, options)) in (1..).zip(jobs) {
        let new = NewJob { source: Source::Uris(uris), options, is_paused: false, index: None };
        // Numbers from one on are identifiers, and none is used twice.
        if let Some(gid) = Gid::new(number) {
            daemon.change(|queue| queue.add(new, gid));
        }
    }
    let (mut told, mut failure) = (0, None);
    while told < count && !stop.load(Ordering::Relaxed) {
        let ended: Vec<Job> = daemon.look(|state| state.queue.results().skip(told).cloned().collect());
        told += ended.len();
        for job in ended {
            match job.end.filter(|end| end.code != 0) {
                Some(end) => {
                    let before: Option<Failure> = failure.replace(failed(&end));
                    before.into_iter().for_each(|failure| say(&format!("anabranch: {failure}")));
                }
                None if !is_quiet => stdout::line(printable(&job.known.path)),
                None => {}
            }
        }
        thread::sleep(LOOK_EVERY);
    }
    failure
}

/// Returns the failure of a download that ended so.
fn failed(end: &End) -> Failure {
    let code = match end.code {
        End::NOT_FOUND => Code::NotFound,
        End::NETWORK => Code::Unreachable,
        End::CHECKSUM => Code::Corrupt,
        End::DISK_FULL | End::FILE_EXISTS | End::FILE => Code::Target,
        End::REFUSED => Code::Refused,
        End::OPTION => Code::Usage,
        _ => Code::Other,
    };
    Failure::new(code, end.message.clone())
}
