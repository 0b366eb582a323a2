//! Connects a [`ContentFetch`] with the event loop: arrivals, links that appear or go, and timeouts.

use anabranch_algo::{Machine as _, Span, Time};
use anabranch_http::client;
use anabranch_mmtp::subscriber::{Input, PathReport, PathState};

use super::{ContentFetch, Run};
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::format::bytes;
use crate::get::event_loop::{Context, Liveness, Poll, RESUMES, Stage};
use crate::get::link_policy::Carried;
use crate::get::mirror_driver::MirrorDriver;
use crate::get::routes::path_word;
use crate::get::sink::Sink;
use crate::get::source_status::Source;
use crate::get::udp_paths::UdpPath;
use crate::get::world::{Arrival, SocketId};
use crate::{Error, Progress, Result};

/// If sources that speak mmTP have answered but none has been open for this long, mirrors go on without the
/// hashes of the sources.
const DESERTED_AFTER: Span = Span::from_secs(5);
/// If no source has answered for this long since the beginning, mirrors go on without the hashes of the
/// sources.
const ABSENT_AFTER: Span = Span::from_secs(2);
/// If sources answer but send none of the hashes for which blocks of mirrors wait, mirrors go on alone after
/// this time. A busy source may ask to be left alone for 10 s.
const HASHLESS_AFTER: Span = Span::from_secs(12);
const NO_ANSWER: &str = "no source answers that speaks mmTP";
const NO_HASHES: &str = "no source sends the hashes that what mirrors bring is to be held against";

impl Stage for Run<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        let Self { fetch, arrivals, busy } = self;
        fetch.follow_network(cx);
        // Checking the part file may take long, and no source is asked meanwhile.
        if fetch.want(arrivals, cx)? {
            (*busy, fetch.source_at) = (true, cx.now());
        }
        *busy |= fetch.follow_reader(arrivals);
        let Some(until) = fetch.drain(arrivals, cx)? else { return Ok(Poll::Read) };
        arrivals.flush()?;
        if arrivals.is_done() && fetch.subscriber.is_idle() {
            return Ok(Poll::Done);
        }
        if fetch.subscriber.is_idle() && fetch.mirrors.as_ref().is_none_or(|mirrors| !mirrors.is_alone()) {
            return Ok(Poll::Again);
        }
        if let Some(why) = fetch.lost_sources(cx.now()) {
            fetch.go_alone(why, cx)?;
            return Ok(Poll::Again);
        }
        Ok(Poll::Wait(until))
    }

    fn on_http(&mut self, cx: &mut Context<'_, '_>, events: &mut Vec<client::Event>) -> Result<()> {
        if let Some(mirrors) = &mut self.fetch.mirrors {
            mirrors.receive(&mut self.fetch.subscriber, cx, events);
        }
        Ok(())
    }

    fn on_udp(&mut self, now: Time, socket: SocketId, arrival: Arrival<'_>, observer: &mut Observer<'_>) {
        let ContentFetch { paths, subscriber, .. } = &mut *self.fetch;
        let Some(link) = paths.links.iter().find(|link| link.socket == Some(socket)) else { return };
        let path = link.path;
        match arrival {
            Arrival::Datagrams { bytes, stride, marked } => {
                let (bytes, stride) = link.unframed(bytes, stride);
                subscriber.handle(now, Input::Datagrams { path, bytes: &bytes, stride, marked });
            }
            Arrival::Unreachable => subscriber.handle(now, Input::Unreachable { path }),
            Arrival::Failed(e) => {
                observer.notice(&format!("receiving from {}: {e}", link.peer));
                subscriber.handle(now, Input::Unreachable { path });
            }
        }
    }

    fn on_links(&mut self, cx: &mut Context<'_, '_>) {
        let ContentFetch { paths, subscriber, .. } = &mut *self.fetch;
        let now = cx.now();
        let (down, up) = paths.refresh(subscriber, cx.world);
        for (paths_of, is_down) in [(&down, true), (&up, false)] {
            for path in paths_of {
                if let Some(link) = paths.links.iter().find(|link| link.path == *path) {
                    let word = path_word(is_down, cx.world.held(&link.via));
                    cx.observer.notice(&format!("path to {} via {} is {word}", link.peer, link.via));
                }
            }
        }
        self.fetch.tell_changed(now, (down, up));
        let ContentFetch { subscriber, mirrors, .. } = &mut *self.fetch;
        if let Some(mirrors) = mirrors {
            mirrors.refresh(subscriber, cx);
        }
    }

    fn carried(&self) -> Option<Carried> {
        let ContentFetch { subscriber, paths, mirrors, .. } = &*self.fetch;
        let reports: Vec<_> = subscriber.paths().collect();
        let of_path = |link: &UdpPath| Some((link.via.clone(), reports.get(link.path)?.counters.bytes));
        let of_paths = paths.links.iter().filter_map(of_path);
        Some(of_paths.chain(mirrors.iter().flat_map(MirrorDriver::carried)).collect())
    }

    fn lacks_links(&self) -> bool {
        self.fetch.paths.links.iter().any(|link| link.socket.is_none())
            || self.fetch.mirrors.as_ref().is_some_and(MirrorDriver::lacks_links)
    }

    fn liveness(&mut self) -> Option<Liveness> {
        let ContentFetch { subscriber, mirrors, .. } = &*self.fetch;
        let packets = subscriber.paths().map(|path| path.counters.packets).sum::<u64>();
        let heard = packets + mirrors.as_ref().map_or(0, MirrorDriver::moved);
        // The comparison of mirrors has a timeout of its own.
        let is_comparing = mirrors.as_ref().is_some_and(MirrorDriver::is_comparing);
        Some(Liveness { who: "source", heard, busy: std::mem::take(&mut self.busy) || is_comparing })
    }

    fn faults(&self) -> Option<String> {
        self.fetch.mirrors.as_ref().and_then(MirrorDriver::faults)
    }

    fn give_up(&mut self, why: String) -> Result<()> {
        let kept = match self.arrivals.kept_bytes() {
            0 if self.fetch.paths.links.is_empty() => "do the servers answer others?".to_owned(),
            0 => "is a source running there, and its UDP port open?".to_owned(),
            kept if self.interrupted() == RESUMES => {
                format!("{} are kept, and the same `Get` resumes", bytes(kept))
            }
            _ => self.interrupted().to_owned(),
        };
        Err(Error::unreachable(format!("{why}: {kept}")))
    }

    fn progress(&mut self, now: Time) -> Option<Progress> {
        (self.arrivals.bytes().0 > 0).then(|| {
            self.fetch.snapshot(now, self.arrivals, false);
            self.fetch.last.clone()
        })
    }

    fn interrupted(&self) -> &'static str {
        let is = |what: fn(&MirrorDriver) -> bool| self.fetch.mirrors.as_ref().is_some_and(what);
        self.arrivals.interrupted(is(MirrorDriver::is_of_one_answer), is(MirrorDriver::is_of_no_version))
    }

    fn finish(&mut self, cx: &mut Context<'_, '_>, mut result: Result<()>) -> Result<()> {
        let Self { fetch, arrivals, .. } = self;
        // The last arrivals may revoke earlier blocks, which must then not be kept.
        if result.as_ref().is_err_and(|e| e.kind() != ErrorKind::Corrupt)
            && let Err(e) = fetch.drain_mirrors(arrivals, cx)
            && e.kind() == ErrorKind::Corrupt
        {
            result = Err(e);
        }
        if let (Err(error), Some((_, buffer))) = (&result, arrivals.reading())
            && error.kind() == ErrorKind::Corrupt
        {
            buffer.clear();
        }
        fetch.snapshot(cx.now(), arrivals, true);
        let flushed = arrivals.flush();
        if result.is_err() {
            arrivals.discard_empty();
        }
        result.and(flushed)
    }
}

impl ContentFetch {
    /// Lets the schedulers go as far ahead of the reader as the buffer has room, and no further. Returns
    /// whether the transfer waits for the reader, which is busy or can read on; a lack of arrivals is then
    /// not counted as silence.
    fn follow_reader(&mut self, arrivals: &Sink) -> bool {
        let Some((download, buffer)) = arrivals.reading() else { return false };
        if let Some(end_block) = buffer.new_horizon() {
            match &mut self.mirrors {
                Some(mirrors) if mirrors.is_alone() => mirrors.set_horizon(end_block),
                mirrors => {
                    mirrors.iter_mut().for_each(|mirrors| mirrors.set_horizon(end_block));
                    self.subscriber.set_horizon(download, end_block);
                }
            }
        }
        buffer.can_be_read()
    }

    /// Returns why mirrors have to go on alone, if they have to. Without a leaf list, their blocks are
    /// verified by hashes that only sources have, so mirrors go on alone when no source sends any.
    fn lost_sources(&mut self, now: Time) -> Option<&'static str> {
        let mirrors = self.mirrors.as_ref().filter(|mirrors| mirrors.can_supply())?;
        let is_waiting = self.subscriber.awaits_hashes(mirrors.depends_on_sources()?);
        let reports: Vec<PathReport> = self.subscriber.paths().collect();
        let in_use = |source: &Source| source.banned.is_none() && source.refused.is_none();
        let mut left = self.paths.links.iter().filter(|link| in_use(&self.sources[link.source])).peekable();
        let none_left = left.peek().is_none();
        let is_open =
            left.any(|link| reports.get(link.path).is_some_and(|report| report.state == PathState::Open));
        let hashes = reports.iter().map(|report| report.counters.hashes).sum();
        if is_open && (!is_waiting || hashes > self.hashes || !self.source_answered) {
            (self.source_at, self.source_answered, self.hashes) = (now, true, hashes);
        }
        let (patience, why) = match (self.source_answered, is_open) {
            (false, _) => (ABSENT_AFTER, NO_ANSWER),
            (true, true) => (HASHLESS_AFTER, NO_HASHES),
            // The subscriber has no room for more unverified blocks. It would drop what mirrors bring and ask
            // for it again, so mirrors go on alone at once.
            (true, false) if self.subscriber.is_full() => (Span::ZERO, NO_ANSWER),
            (true, false) => (DESERTED_AFTER, NO_ANSWER),
        };
        (none_left || now.since(self.source_at) > patience).then_some(why)
    }

    /// Lets mirrors go on without sources. What has arrived, the clock and the counters are kept.
    fn go_alone(&mut self, why: &str, cx: &mut Context<'_, '_>) -> Result<()> {
        let Some(mirrors) = &mut self.mirrors else { return Ok(()) };
        let how = mirrors.verified_alone();
        cx.observer.notice(&format!("{why}: mirrors alone go on; {how}"));
        mirrors.go_alone(cx.now(), &mut self.subscriber)?;
        self.deserted = true;
        Ok(())
    }

    /// Whether only mirrors were left at the end of the transfer.
    pub(in crate::get) const fn is_deserted(&self) -> bool {
        self.deserted
    }
}
