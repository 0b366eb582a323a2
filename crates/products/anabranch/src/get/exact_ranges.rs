//! Fetches many short ranges of a file byte by byte, without the rest of their blocks.
//!
//! Blocks are the parts that hashes prove. Where no hash of a part is known, a whole block proves no more
//! than the bytes that are wanted of it, and costs more. So each range is a file of the file scheduler: its
//! requests follow each other on a connection without waiting for answers, and all connections to all mirrors
//! take them from one queue.
//!
//! Of several mirrors, each one is asked for the same few ranges, chosen by a secret, and the answers are
//! compared. If mirrors differ, if one has another version than before, or if a range does not arrive from
//! any of them, this stage ends without a result. The transfer by blocks, which follows then, decides what
//! becomes of such mirrors; this stage decides nothing about them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;

use anabranch_algo::{Machine as _, Output, Rate, Span, Time};
use anabranch_http::client::{self, FetchError, FetchId, FetchRequest, PIPELINE_MAX};
use anabranch_mirror::file_scheduler::{
    Command, Event, Failure, FileId, FileScheduler, FileSpec, Input, SERVERS_MAX, ServerId,
};
use anabranch_mirror::variants::Patience;
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::id::BLOCK_BYTES;

use super::discovered_file::{DiscoveredFile, Mirror};
use super::event_loop::{Context, EventLoop, Liveness, Poll, Stage};
use super::file_connections::FileConnections;
use super::link_policy::Carried;
use super::name_lookup::look_up;
use super::origin::host;
use super::outcome::FileOutcome;
use super::rate_meter::RateMeter;
use super::reassembly_buffer::Piece;
use super::request::Request;
use super::routes::{all_lead, host_of};
use super::server_status::ServerStatus;
use crate::format::seconds;
use crate::{Progress, Report, Result};

/// The fewest ranges that are worth a scheduler of their own.
const RANGES_MIN: usize = 8;
/// The greatest mean length of such ranges, in bytes. Of longer ranges, the rest of the blocks at their ends
/// is a small part.
const MEAN_BYTES_MAX: u64 = 4 * BLOCK_BYTES as u64;
/// The most bytes that are requested at once, so that no connection holds a long range alone.
const PIECE_BYTES_MAX: u64 = 256 << 10;
/// One of this many pieces is requested from every mirror.
const SAMPLE_OF: usize = 64;
/// The fewest pieces that are requested from every mirror.
const SAMPLES_MIN: usize = 4;
/// How long a silence may last. A slow mirror is not slower here than by blocks.
const PATIENCE: Patience = Patience {
    silence: Span::from_secs(5),
    slow: Rate::from_bytes(0),
    slow_for: Span::from_secs(3_600),
    rest: Span::from_secs(1 << 32),
    endless: Span::from_secs(1 << 32),
};

/// Fetches the wanted ranges of a file and hands them to the reader. Returns `None` if the transfer by blocks
/// has to do this: see the [module](self).
///
/// # Errors
/// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if a named `via` leads to no mirror;
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops.
pub(super) fn fetch(
    request: &Request,
    found: &DiscoveredFile,
    sources: &[(String, Vec<SocketAddr>)],
    events: &mut EventLoop<'_, '_>,
) -> Result<Option<FileOutcome>> {
    let Some(reader) = &request.reader else { return Ok(None) };
    let length = found.id.length;
    let pieces = pieces(&reader.wanted_ranges(), length);
    let mirrors: Vec<&Mirror> =
        found.mirrors.iter().filter(|mirror| mirror.ranges).take(SERVERS_MAX).collect();
    let has_hashes = !sources.is_empty() || found.check != Check::Nothing;
    if has_hashes || mirrors.is_empty() || !are_short(&pieces) {
        return Ok(None);
    }
    let secret = events.world.secret()?;
    let mut stage = ExactRanges::new(request, mirrors, pieces, length, &secret, events)?;
    events.with_patience(Some(PATIENCE), |events| events.run(&mut stage)).0?;
    let last = stage.snapshot(events.world.now(), true);
    let Some(came) = stage.into_pieces() else { return Ok(None) };
    reader.deliver(found.id, came);
    let report = Report { last, complete: true, ..Report::default() };
    Ok(Some(FileOutcome { report, result: Ok(()) }))
}

/// Returns the parts of these ranges, which are in order, that are requested of a file of this length.
fn pieces(ranges: &[Range<u64>], length: u64) -> Vec<Range<u64>> {
    let inside = ranges.iter().map(|range| range.start.min(length)..range.end.min(length));
    let cut = |range: Range<u64>| {
        let ends = range.clone().step_by(PIECE_BYTES_MAX as usize);
        ends.map(move |first| first..range.end.min(first + PIECE_BYTES_MAX))
    };
    inside.flat_map(cut).collect()
}

/// Returns whether the transfer by blocks would fetch much more than these ranges.
fn are_short(pieces: &[Range<u64>]) -> bool {
    let bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    pieces.len() >= RANGES_MIN && bytes <= MEAN_BYTES_MAX * pieces.len() as u64
}

/// A file of the scheduler: a piece, perhaps as one certain mirror has it.
struct Copy {
    piece: usize,
    bytes: Vec<u8>,
}

/// The stage that fetches ranges; see the [module](self).
struct ExactRanges<'a> {
    connections: FileConnections<'a>,
    mirrors: Vec<&'a Mirror>,
    status: Vec<ServerStatus>,
    pieces: Vec<Range<u64>>,
    /// The files of the scheduler; those behind the first [`pieces`](Self::pieces) are samples.
    copies: Vec<Copy>,
    /// The bodies that are arriving.
    coming: BTreeMap<FetchId, Vec<u8>>,
    /// The length of the whole file in bytes.
    length: u64,
    /// Why the transfer by blocks takes over, if it does.
    failed: Option<String>,
    done_bytes: u64,
    rows: RateMeter,
}

impl<'a> ExactRanges<'a> {
    fn new(
        request: &'a Request,
        mirrors: Vec<&'a Mirror>,
        pieces: Vec<Range<u64>>,
        length: u64,
        secret: &[u8; 32],
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Self> {
        let all: Vec<ServerId> = (0..mirrors.len() as ServerId).collect();
        let samples = if mirrors.len() > 1 { samples(pieces.len(), secret) } else { Vec::new() };
        let bytes = |piece: usize| pieces[piece].end - pieces[piece].start;
        let (mut wanted, mut copies) = (Vec::new(), Vec::new());
        for piece in 0..pieces.len() {
            // A sample's first copy is the first mirror's.
            let servers = if samples.contains(&piece) { vec![0] } else { all.clone() };
            wanted.push(FileSpec { bytes: bytes(piece), servers });
            copies.push(Copy { piece, bytes: Vec::new() });
        }
        for (piece, server) in samples.iter().flat_map(|piece| all[1..].iter().map(move |one| (*piece, *one)))
        {
            wanted.push(FileSpec { bytes: bytes(piece), servers: vec![server] });
            copies.push(Copy { piece, bytes: Vec::new() });
        }
        let machine = FileScheduler::new(&wanted, PIPELINE_MAX);
        let mut new = Self {
            connections: FileConnections::new(machine, &request.links.ends),
            status: mirrors.iter().map(|mirror| ServerStatus::new(host(&mirror.url))).collect(),
            mirrors,
            pieces,
            copies,
            coming: BTreeMap::new(),
            length,
            failed: None,
            done_bytes: 0,
            rows: RateMeter::new(events.world.now()),
        };
        new.open(events)?;
        Ok(new)
    }

    /// Opens the routes to all mirrors.
    fn open(&mut self, events: &mut EventLoop<'_, '_>) -> Result<()> {
        let urls = self.mirrors.iter().map(|mirror| &mirror.url);
        let direct = urls.filter(|url| !events.world.is_proxied(url.as_str()));
        let hosts: Vec<String> = direct.map(|url| host_of(url).to_owned()).collect();
        look_up(&hosts, INTERRUPTED, events)?;
        let cx = &mut events.context();
        for (server, mirror) in (0..).zip(&self.mirrors) {
            if let Err(why) = self.connections.connect(server, &mirror.url, cx) {
                self.failed = Some(format!("{}: {why}", host(&mirror.url)));
            }
        }
        all_lead(self.connections.named, &self.connections.routes, self.failed.as_deref(), cx.world)
    }

    /// Does what the scheduler wants until it waits; returns the time until which it waits.
    fn drain(&mut self, cx: &mut Context<'_, '_>) -> Time {
        let now = cx.now();
        loop {
            match self.connections.machine.poll(now) {
                Output::Wait(until) => return until,
                Output::Send(Command::Fetch { connection, fetch, file, .. }) => {
                    let Some(route) = self.connections.routes.get(connection) else { continue };
                    let mirror = self.mirrors[usize::from(route.mirror)];
                    let piece = &self.pieces[self.copies[file].piece];
                    let request = FetchRequest {
                        route: connection,
                        via: route.via.clone(),
                        url: mirror.url.as_str().to_owned(),
                        trusted: mirror.trusted,
                        kind: mirror.range(piece.start, piece.end, self.length),
                    };
                    self.coming.insert(fetch, Vec::with_capacity((piece.end - piece.start) as usize));
                    cx.world.fetch(fetch, request);
                }
                Output::Send(Command::Cancel { fetch }) => {
                    self.coming.remove(&fetch);
                    cx.world.cancel(fetch);
                }
                Output::Event(Event::Complete { file, fetch }) => {
                    let bytes = self.coming.remove(&fetch).unwrap_or_default();
                    if file < self.pieces.len() {
                        self.done_bytes += bytes.len() as u64;
                    }
                    self.copies[file].bytes = bytes;
                }
                Output::Event(Event::BadContent { .. }) => {}
                Output::Event(Event::Lost { file }) => {
                    let first = self.pieces[self.copies[file].piece].start;
                    self.fail(format!("the range from byte {first} on did not come"));
                }
            }
        }
    }

    fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Returns the file of a request that is not over yet.
    fn file_of(&self, id: FetchId) -> Option<FileId> {
        self.connections.machine.file_of(id)
    }

    fn on_failed(&mut self, now: Time, id: FetchId, error: &FetchError) {
        self.coming.remove(&id);
        let failure = match error {
            FetchError::Unreachable(_) | FetchError::Broken(_) => Failure::Broken,
            _ => return self.fail(error.to_string()),
        };
        self.connections.machine.handle(now, Input::Failed { fetch: id, failure });
    }

    /// Returns the first mirror whose sample differs from the first mirror's.
    fn outlier(&self) -> Option<&str> {
        let mut samples = self.copies[self.pieces.len()..].iter().enumerate();
        let (number, _) = samples.find(|(_, copy)| self.copies[copy.piece].bytes != copy.bytes)?;
        // The samples of a piece are in the order of the mirrors.
        Some(&self.status[1 + number % (self.status.len() - 1)].name)
    }

    fn snapshot(&mut self, now: Time, end: bool) -> Progress {
        let status = |server: ServerId| &self.status[usize::from(server)];
        let paths = self.connections.rows((now, end), &mut self.rows, status);
        Progress {
            total_bytes: Some(self.pieces.iter().map(|piece| piece.end - piece.start).sum()),
            done_bytes: self.done_bytes,
            elapsed_s: seconds(now.since(self.rows.start)),
            paths,
            ..Progress::default()
        }
    }

    /// Returns what has arrived, if all of it has.
    fn into_pieces(mut self) -> Option<Vec<Piece>> {
        if self.failed.is_some() {
            return None;
        }
        self.copies.truncate(self.pieces.len());
        Some(
            self.pieces
                .iter()
                .map(|piece| piece.start)
                .zip(self.copies.into_iter().map(|one| one.bytes))
                .collect(),
        )
    }
}

/// What becomes of the ranges if the caller stops the transfer.
const INTERRUPTED: &str = "nothing of the ranges is kept";

/// Chooses the pieces that are requested from every mirror.
fn samples(pieces: usize, secret: &[u8; 32]) -> Vec<usize> {
    let rank = |piece: &usize| *blake3::keyed_hash(secret, &piece.to_le_bytes()).as_bytes();
    let mut all: Vec<usize> = (0..pieces).collect();
    all.sort_by_cached_key(rank);
    all.truncate(SAMPLES_MIN.max(pieces / SAMPLE_OF));
    all
}

impl Stage for ExactRanges<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        let until = self.drain(cx);
        if self.failed.is_none() && self.connections.machine.remaining() > 0 {
            return Ok(Poll::Wait(until));
        }
        if self.failed.is_none()
            && let Some(name) = self.outlier()
        {
            self.failed = Some(format!("{name} has other bytes than {}", self.status[0].name));
        }
        Ok(Poll::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_, '_>, result: Result<()>) -> Result<()> {
        if let Some(why) = &self.failed {
            cx.observer.notice(&format!("{why}: the ranges come in whole blocks"));
        }
        result
    }

    fn on_http(&mut self, cx: &mut Context<'_, '_>, events: &mut Vec<client::Event>) -> Result<()> {
        let now = cx.now();
        for event in events.drain(..) {
            let file = match &event {
                client::Event::Head { id, .. }
                | client::Event::Body { id, .. }
                | client::Event::Opening { id, .. }
                | client::Event::Done { id }
                | client::Event::Failed { id, .. } => self.file_of(*id),
                client::Event::Sample { .. } => None,
            };
            match (event, file) {
                (client::Event::Sample { route, sample }, _) => {
                    let input = Input::Sample { connection: route, rtt: sample.rtt };
                    self.connections.machine.handle(now, input);
                }
                (client::Event::Head { head, .. }, Some(_)) if head.whole || head.ends_early_at.is_some() => {
                    self.fail("a server sends other ranges than it was asked for".to_owned());
                }
                (client::Event::Head { id, head }, Some(_)) => {
                    let input = Input::Head { fetch: id, nth: head.nth, last: head.last };
                    self.connections.machine.handle(now, input);
                }
                (client::Event::Body { id, bytes }, Some(_)) => {
                    let input = Input::Bytes { fetch: id, bytes: bytes.len() as u64 };
                    self.connections.machine.handle(now, input);
                    self.coming.entry(id).or_default().extend_from_slice(&bytes);
                }
                (client::Event::Done { id }, Some(_)) => {
                    self.connections.machine.handle(now, Input::Done { fetch: id, valid: true });
                }
                (client::Event::Failed { id, error }, Some(_)) => self.on_failed(now, id, &error),
                // Only requests for metadata get an opening; the other requests are over.
                (client::Event::Opening { .. }, _) | (_, None) => {}
            }
        }
        Ok(())
    }

    fn on_links(&mut self, cx: &mut Context<'_, '_>) {
        self.connections.refresh(self.mirrors.iter().map(|mirror| &mirror.url), cx);
    }

    fn carried(&self) -> Option<Carried> {
        Some(self.connections.carried())
    }

    fn liveness(&mut self) -> Option<Liveness> {
        Some(Liveness { who: "mirror", heard: self.connections.received_bytes(), busy: false })
    }

    fn give_up(&mut self, why: String) -> Result<()> {
        self.fail(why);
        Ok(())
    }

    fn progress(&mut self, now: Time) -> Option<Progress> {
        Some(self.snapshot(now, false))
    }

    fn interrupted(&self) -> &'static str {
        INTERRUPTED
    }
}

#[cfg(test)]
mod tests;
