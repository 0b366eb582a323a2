//! Fetches a file whose length no server states: its body is sent in chunks, because it is generated while it
//! is sent.
//!
//! No server can be asked for ranges of such a file. One answer of one server is written into a file without
//! a name. If the answer breaks off, all its bytes are dropped, because another answer may have other bytes.
//! Once the answer is complete, its length is known, and the content is put into its place like every other
//! content.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use anabranch_algo::{Rate, Span, Time};
use anabranch_http::client::{Event, FetchError, FetchRequest, RequestKind};
use anabranch_mirror::metalink::Pieces;
use anabranch_mirror::range_scheduler::{RETRY_MAX, RETRY_MIN, backoff};
use anabranch_mirror::url::Url;
use anabranch_net::Egress;
use nix::fcntl::OFlag;

use super::event_loop::{Context, EventLoop, Liveness, Poll, Stage};
use super::link_policy::Carried;
use super::origin::host;
use super::server_status::{code, describe, pause};
use super::sink::Wanted;
use super::world::Hold;
use crate::format::seconds;
use crate::report::one_a_path;
use crate::target::{DestPath, Finished, Output, Target, make_way, wrong_piece};
use crate::{Error, PathProgress, PathState, Progress, Result};

/// The largest number of requests for the answer, including the first.
const TRIES_MAX: u32 = 4;

/// Holds a whole file that arrived in one answer.
#[derive(Debug)]
pub(super) struct OneAnswer {
    file: File,
    /// The length of the file in bytes.
    pub(super) length: u64,
    /// The final progress of that transfer.
    pub(super) progress: Progress,
}

/// Fetches the answer, as a stage of the event loop.
struct Taking {
    url: Url,
    /// Whether the user named the origin of the URL.
    trusted: bool,
    via: Egress,
    file: File,
    bytes: u64,
    /// The number of requests that have been sent, including the pending one.
    tries: u32,
    is_asked: bool,
    ask_at: Time,
    start: Time,
    heard: u64,
    /// The time at which the last request was sent or the last bytes arrived, whichever was later.
    heard_at: Time,
    /// The sum of the silences that preceded the failures of earlier requests.
    silence: Span,
    is_done: bool,
}

/// Fetches the whole file of `url` in one answer, from the local end `via`.
///
/// # Errors
/// The error of the server; [`ErrorKind::Target`](crate::ErrorKind::Target) if the body cannot be written.
pub(super) fn take(
    url: &Url,
    trusted: bool,
    via: &Egress,
    output: &Output,
    events: &mut EventLoop<'_, '_>,
) -> Result<OneAnswer> {
    events.observer.notice(&format!(
        "{} does not say how long the file is: it is taken in one answer, over one link, and if that is \
         interrupted, from the beginning",
        host(url)
    ));
    let start = events.world.now();
    let mut taking = Taking {
        url: url.clone(),
        trusted,
        via: via.clone(),
        file: unnamed(output.outer()).map_err(cannot_write)?,
        bytes: 0,
        tries: 0,
        is_asked: false,
        ask_at: start,
        start,
        heard: 0,
        heard_at: start,
        silence: Span::ZERO,
        is_done: false,
    };
    events.run(&mut taking)?;
    let progress = taking.snapshot(events.world.now());
    let progress = Progress { total_bytes: Some(taking.bytes), note: None, ..progress };
    Ok(OneAnswer { file: taking.file, length: taking.bytes, progress })
}

/// Opens a file without a name, in `directory` if its file system supports this, else in the directory for
/// temporary files.
fn unnamed(directory: &Path) -> io::Result<File> {
    let open = |directory: &Path| {
        OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_TMPFILE.bits()).open(directory)
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    open(directory).or_else(|_| open(&std::env::temp_dir()))
}

fn cannot_write(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::target("the disk is full: make room and run the same `Get` again").because(error)
        }
        _ => Error::target(format!("what comes cannot be written: {error}")).because(error),
    }
}

impl Taking {
    fn snapshot(&self, now: Time) -> Progress {
        let span = now.since(self.start);
        let row = PathProgress {
            source: host(&self.url),
            via: self.via.to_string(),
            state: if self.bytes > 0 { PathState::Open } else { PathState::NoAnswerYet },
            rate_bytes: Rate::of(self.bytes, span).as_bytes(),
            bytes: self.bytes,
            ..PathProgress::default()
        };
        Progress {
            done_bytes: self.bytes,
            elapsed_s: seconds(span),
            paths: one_a_path(std::iter::once(row)),
            note: Some("nobody says how long it is".to_owned()),
            ..Progress::default()
        }
    }

    /// Schedules a repetition after a failed request, or returns the error if no repetition is left or
    /// useful.
    fn failed(&mut self, now: Time, error: &FetchError, cx: &mut Context<'_, '_>) -> Result<()> {
        let may_work = matches!(
            error,
            FetchError::Unreachable(_)
                | FetchError::Broken(_)
                | FetchError::ServerError { .. }
                | FetchError::Busy { .. }
        );
        // A server that stalls again and again gets no more time in total than one that stalls once.
        self.silence = self.silence + now.since(self.heard_at);
        if !may_work || self.tries >= TRIES_MAX || self.silence >= cx.timeout {
            let why = describe(error, self.trusted);
            let failed = code(error).error(format!("{}: {why}", host(&self.url)));
            return Err(failed.at(&self.url).because(error.clone()));
        }
        cx.observer.notice(&format!("{}: {error}: begun anew", host(&self.url)));
        self.file.set_len(0).map_err(cannot_write)?;
        (self.bytes, self.is_asked) = (0, false);
        self.ask_at = now + pause(error).max(backoff(RETRY_MIN, self.tries, RETRY_MAX));
        Ok(())
    }
}

impl Stage for Taking {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        if self.is_done {
            return Ok(Poll::Done);
        }
        if cx.world.held(&self.via) == Some(Hold::Spent) {
            cx.world.cancel(self.tries.into());
            let why = format!("{} may carry no more, and no other link can go on from there", self.via);
            return self.give_up(why).map(|()| Poll::Done);
        }
        if !self.is_asked && cx.now() >= self.ask_at {
            (self.is_asked, self.tries, self.heard_at) = (true, self.tries + 1, cx.now());
            let request = FetchRequest {
                route: 0,
                via: self.via.clone(),
                url: self.url.as_str().to_owned(),
                trusted: self.trusted,
                kind: RequestKind::Document { max: usize::MAX },
            };
            cx.world.fetch(self.tries.into(), request);
        }
        Ok(Poll::Wait(if self.is_asked { Time::NEVER } else { self.ask_at }))
    }

    fn on_http(&mut self, cx: &mut Context<'_, '_>, events: &mut Vec<Event>) -> Result<()> {
        let now = cx.now();
        self.heard += events.len() as u64;
        events.drain(..).try_for_each(|event| {
            match event {
                Event::Body { bytes, .. } => {
                    self.file.write_all_at(&bytes, self.bytes).map_err(cannot_write)?;
                    self.bytes += bytes.len() as u64;
                    self.heard_at = now;
                }
                Event::Done { .. } => self.is_done = true,
                Event::Failed { error, .. } => self.failed(now, &error, cx)?,
                Event::Head { .. } | Event::Opening { .. } | Event::Sample { .. } => {}
            }
            Ok(())
        })
    }

    fn carried(&self) -> Option<Carried> {
        Some(vec![(self.via.clone(), self.bytes)])
    }

    fn liveness(&mut self) -> Option<Liveness> {
        Some(Liveness { who: "server", heard: self.heard, busy: false })
    }

    fn give_up(&mut self, why: String) -> Result<()> {
        Err(Error::unreachable(format!("{}: {why}", host(&self.url))).at(&self.url))
    }

    fn progress(&mut self, now: Time) -> Option<Progress> {
        Some(self.snapshot(now))
    }

    fn interrupted(&self) -> &'static str {
        "nothing is kept, for the server does not say how long the file is"
    }
}

impl OneAnswer {
    fn read(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        let read = self.file.read_exact_at(bytes, at);
        read.map_err(|e| Error::target(format!("what came cannot be read again: {e}")).because(e))
    }

    /// Puts the file into its place, if it meets the demands. It becomes a part file first, like every
    /// content, and is not mixed with parts of other contents there. It is checked against the hashes of
    /// `pieces`, if there are any.
    ///
    /// # Errors
    /// The errors of every complete content.
    pub(super) fn put(
        &self,
        pieces: Option<&Pieces>,
        Wanted { id, aliases, demands }: Wanted,
        place: DestPath,
        force: bool,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Finished> {
        if let Some(pieces) = pieces
            && let Some(at) = wrong_piece(&place, &self.file, id.length, pieces, &mut |_, at| progress(at))?
        {
            let why = "what came has other pieces than it should";
            return Err(Error::corrupt(format!("{why}, from byte {at} on: nothing of it is kept")));
        }
        make_way(&place, &self.file, &id, &aliases, &demands, progress)?;
        let mut read = |bytes: &mut [u8], at| self.read(bytes, at);
        Target::put(place, id, &aliases, demands, force, &mut read, progress)
    }
}
