//! The loop that joins the subscriber, its sockets, the clock and the disk.
//!
//! One thread: wait until a socket is readable or a timer is due, hand over what came, send what the machine
//! wants sent, write what it verified, draw. Everything read in one turn is written in one turn, so that what
//! a crash can lose is what the journal does not say.

mod reading;
mod report;
mod timeouts;

use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use algo::{Machine as _, Output, Span, Time};
use mmtp::ContentId;
use mmtp::subscriber::{Event, Grouping, Input, Subscriber, Transmit};
use net::{Clock, Datagrams, Interest, NetworkMonitor, Poller, RecvBuffers, RecvOutcome, SendOutcome};

use super::groups::{GroupPolicy, Groups};
use super::idle_timeout::IdleTimer;
use super::mirror_driver::{MirrorConfig, MirrorDriver, PoolEvent};
use super::rate_meter::RateMeter;
use super::request::Request;
use super::sink::Sink;
use super::source_status::{Source, given_up};
use super::udp_paths::UdpPaths;
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::secret::secret;
use crate::{Error, Result};
use crate::{Progress, Stop};

/// How often a path whose interface is gone is tried again even if the kernel announced nothing.
const REFRESH_EVERY: Span = Span::from_secs(1);
/// Older than this, what the sockets have is read again before the machine is asked.
const STALE_AFTER: Span = Span::from_millis(5);
/// Buffer sets read from one socket in one turn, so that none starves the others.
const READS_A_TURN: usize = 4;

/// A running transfer: paths that outlive one content.
pub(super) struct Driver {
    clock: Clock,
    subscriber: Subscriber,
    paths: UdpPaths,
    web: Option<MirrorDriver>,
    sources: Vec<Source>,
    poller: Poller,
    watch: Option<NetworkMonitor>,
    stop: Stop,
    buffers: RecvBuffers,
    timeout: Span,
    refresh_at: Time,
    silence: IdleTimer,
    rows: RateMeter,
    last: Progress,
    named: Option<Vec<u8>>,
    /// A source has just been ruled out.
    doubtful: bool,
    /// When the sockets were last read.
    read_at: Time,
    /// When a source that speaks mmTP was last open.
    source_at: Time,
    deserted: bool,
}

impl Driver {
    /// Opens every path, to sources and to mirrors.
    ///
    /// # Errors
    /// See [`UdpPaths::new`] and [`MirrorDriver::new`].
    pub(super) fn new(
        request: &Request,
        sources: &[(String, Vec<SocketAddr>)],
        mirrors: Option<MirrorConfig>,
        observer: &mut Observer<'_>,
    ) -> Result<Self> {
        let algorithm = request.algorithm;
        let mut subscriber = Subscriber::new(&secret()?);
        let groups = GroupPolicy::new(&request.groups)?;
        for line in groups.strangers(sources) {
            observer
                .notice(&format!("--groups: line {line} names a source that this transfer does not have"));
        }
        if request.groups == Groups::Auto {
            subscriber.set_grouping(Grouping::Auto);
        }
        let paths =
            UdpPaths::new(request, algorithm, groups.clone(), sources, mirrors.is_none(), &mut subscriber)?;
        let known = paths.links.len();
        let web =
            mirrors.map(|parts| MirrorDriver::new(parts, &request.via, algorithm, &groups, known, observer));
        let mut web = web.transpose()?;
        let mut names: Vec<String> = sources.iter().map(|(name, _)| name.clone()).collect();
        if let Some(web) = web.as_mut().filter(|web| !web.is_alone()) {
            names.extend(web.join(&mut subscriber));
        }
        let clock = Clock::start();
        let watch = NetworkMonitor::new()
            .map_err(|e| observer.notice(&format!("cannot watch the interfaces: {e}")))
            .ok();
        let now = clock.now();
        Ok(Self {
            clock,
            subscriber,
            paths,
            web,
            sources: names.into_iter().map(|name| Source { name, banned: None, refused: None }).collect(),
            poller: Poller::new(clock),
            watch,
            stop: observer.stop().clone(),
            buffers: RecvBuffers::new(),
            timeout: request.timeout,
            refresh_at: now + REFRESH_EVERY,
            silence: IdleTimer::new(now),
            rows: RateMeter::new(now),
            last: Progress::default(),
            named: None,
            doubtful: false,
            read_at: now,
            source_at: now,
            deserted: false,
        })
    }

    /// What the first source that answers calls a content.
    pub(super) fn name_of(&mut self, id: ContentId, observer: &mut Observer<'_>) -> Result<Option<Vec<u8>>> {
        self.subscriber.add_download(id, true, |_| true);
        self.run(&mut Sink::new(Vec::new(), false), observer)?;
        Ok(self.named.take())
    }

    /// A whole content, in memory.
    pub(super) fn fetch_manifest(&mut self, id: ContentId, observer: &mut Observer<'_>) -> Result<Vec<u8>> {
        let mut arrivals = Sink::in_memory(id, &mut self.subscriber);
        self.run(&mut arrivals, observer)?;
        Ok(arrivals.into_memory())
    }

    /// Runs until everything in `arrivals` is here.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no source has a content, [`Error::Unreachable`] if nobody answers any more,
    /// [`Error::Corrupt`] if all are banned, [`Error::Target`] if the disk does not take it,
    /// [`Error::Interrupted`] if the caller stops. What arrived is on the disk in any case, unless nobody can
    /// tell whether it is right.
    pub(super) fn run(&mut self, arrivals: &mut Sink, observer: &mut Observer<'_>) -> Result<()> {
        let mut result = self.event_loop(arrivals, observer);
        // What came last may revoke what came before: that must not be kept.
        if result.as_ref().is_err_and(|e| e.kind() != ErrorKind::Corrupt)
            && let Err(e) = self.drain_web(arrivals, observer)
            && e.kind() == ErrorKind::Corrupt
        {
            result = Err(e);
        }
        self.snapshot(arrivals, true);
        let flushed = arrivals.flush();
        if result.is_err() {
            arrivals.discard_empty();
        }
        result.and(flushed)
    }

    fn event_loop(&mut self, arrivals: &mut Sink, observer: &mut Observer<'_>) -> Result<()> {
        self.silence.restart(self.clock.now());
        loop {
            let (stop, clock) = (self.stop.clone(), self.clock);
            let mut checking = |total_bytes: u64, done_bytes: u64| {
                observer.checking(clock.now(), Progress { total_bytes, done_bytes, ..Progress::default() });
                !stop.is_stopped()
            };
            let (subscriber, web) = (&mut self.subscriber, &mut self.web);
            let mut want = |id: ContentId, have: &dyn Fn(u64) -> bool| match web.as_mut() {
                Some(web) if web.is_alone() => web.want(have).map(|()| 0),
                web => {
                    let download = subscriber.add_download(id, false, have);
                    if let Some(web) = web {
                        web.borrow(download, subscriber);
                    }
                    Ok(download)
                }
            };
            if arrivals.advance(&mut want, &mut checking)? {
                // Checking what is there may have taken long; nobody was asked meanwhile.
                self.silence.restart(self.clock.now());
            }
            self.follow_reader(arrivals);
            let deadline = self.drain(arrivals, observer)?;
            arrivals.flush()?;
            if arrivals.is_done() && self.subscriber.is_idle() {
                return Ok(());
            }
            if self.subscriber.is_idle() && self.web.as_ref().is_none_or(|web| !web.is_alone()) {
                continue;
            }
            let now = self.clock.now();
            self.check_time(now, arrivals, observer)?;
            if observer.is_due(now) && arrivals.bytes().0 > 0 {
                self.snapshot(arrivals, false);
                observer.progress(now, &self.last);
            }
            let tick = now + Span::from_millis(100);
            self.wait(deadline.min(tick).min(self.refresh_at), arrivals, observer)?;
            if self.stop.is_stopped() {
                return Err(arrivals.interrupted());
            }
        }
    }

    /// Does what the machines want until they want to wait; returns until when.
    ///
    /// Writing down what came may have taken long. Then what has arrived meanwhile is read before any timer
    /// is looked at, so that a slow disk is not taken for a silent network.
    fn drain(&mut self, arrivals: &mut Sink, observer: &mut Observer<'_>) -> Result<Time> {
        let mut read_again = false;
        // Until when the mirrors wait, if nothing has happened since.
        let mut waits = Some(self.drain_web(arrivals, observer)?);
        loop {
            let now = self.clock.now();
            if !read_again && now.since(self.read_at) > STALE_AFTER {
                read_again = true;
                self.receive(true, observer);
                waits = None;
            }
            match (self.subscriber.poll(now), waits) {
                (Output::Wait(until), Some(until_web)) => {
                    // Only now: every source that was ruled out meanwhile is to be shown as such.
                    let hopeless =
                        std::mem::take(&mut self.doubtful) && self.subscriber.unobtainable().is_some();
                    return if hopeless {
                        Err(given_up(&self.sources, arrivals.reading().is_none()))
                    } else {
                        Ok(until.min(until_web))
                    };
                }
                // What sources have done may leave the mirrors something to do, and what mirrors borrow then
                // may have hashes that sources are to be asked for.
                (Output::Wait(_), None) => waits = Some(self.drain_web(arrivals, observer)?),
                (Output::Send(transmit), _) => {
                    self.send(now, &transmit);
                    waits = None;
                }
                (Output::Event(event), _) => {
                    self.event(event, arrivals, observer)?;
                    waits = None;
                }
            }
        }
    }

    /// The same of the mirrors. That the disk fails is told when all they brought has been looked at: what is
    /// revoked must not be kept.
    fn drain_web(&mut self, arrivals: &mut Sink, observer: &mut Observer<'_>) -> Result<Time> {
        let Some(web) = &mut self.web else { return Ok(Time::NEVER) };
        let mut written = Ok(());
        let until = web.drain(self.clock.now(), &mut self.subscriber, observer, |brought| match brought {
            PoolEvent::Block { .. } | PoolEvent::Complete if written.is_err() => Ok(()),
            PoolEvent::Block { block, bytes, cv } => {
                written = arrivals.block(0, block, bytes, cv);
                Ok(())
            }
            PoolEvent::Revoked(blocks) => arrivals.revoked(0, blocks),
            PoolEvent::Liar => arrivals.distrust(0),
            PoolEvent::Disagree => arrivals.discard(0),
            // It was said that what is there is kept as it is.
            PoolEvent::Complete if self.stop.is_stopped() => Ok(()),
            PoolEvent::Complete => arrivals.complete(0),
        })?;
        written.map(|()| until)
    }

    fn send(&mut self, now: Time, transmit: &Transmit) {
        let Some(link) = self.paths.links.iter().find(|link| link.path == transmit.path) else { return };
        let Some(udp) = &link.udp else { return };
        let datagrams =
            Datagrams { to: None, from_ip: None, bytes: &transmit.bytes, segment: None, ecn: false };
        match udp.send(&datagrams) {
            // A request that does not fit the socket's buffer is lost like any other packet.
            SendOutcome::Sent | SendOutcome::WouldBlock | SendOutcome::TooBig => {}
            SendOutcome::IcmpError(_) | SendOutcome::Other(_) => {
                self.subscriber.handle(now, Input::Unreachable { path: transmit.path });
            }
        }
    }

    fn event(&mut self, event: Event, arrivals: &mut Sink, observer: &mut Observer<'_>) -> Result<()> {
        match event {
            Event::Block { download, block, bytes, cv } => arrivals.block(download, block, bytes, cv),
            Event::Complete { download } => arrivals.complete(download),
            Event::Meta { name, .. } => {
                self.named = Some(name);
                Ok(())
            }
            Event::Banned { source, block, .. } => {
                if let Some(web) = &mut self.web
                    && let Some(mirror) = web.mirror_of(source)
                {
                    web.ban(self.clock.now(), mirror, block, &mut self.subscriber);
                }
                let source = &mut self.sources[usize::from(source)];
                let reason = format!("wrong bytes in block {block}");
                observer.banned(&source.name, &reason);
                source.banned = Some(reason);
                self.doubtful = true;
                Ok(())
            }
            // Of mirrors more has been said already.
            Event::Refused { source, .. }
                if self.web.as_ref().is_some_and(|w| w.mirror_of(source).is_some()) =>
            {
                self.doubtful = true;
                Ok(())
            }
            Event::Refused { source, reason, .. } => {
                let source = &mut self.sources[usize::from(source)];
                observer.notice(&format!("{}: {reason}", source.name));
                source.refused = Some(reason);
                self.doubtful = true;
                Ok(())
            }
            Event::Groups { groups } => {
                observer.notice(&self.paths.describe(&groups));
                Ok(())
            }
            Event::Path { .. } => Ok(()),
        }
    }

    fn refresh(&mut self, now: Time, observer: &mut Observer<'_>) {
        let (down, up) = self.paths.refresh(&mut self.subscriber);
        for (paths, word) in [(&down, "gone"), (&up, "back")] {
            for path in paths {
                if let Some(link) = self.paths.links.iter().find(|link| link.path == *path) {
                    observer.notice(&format!("path to {} via {} is {word}", link.peer, link.via));
                }
            }
        }
        for path in down {
            self.subscriber.handle(now, Input::Down { path });
        }
        for path in up {
            self.subscriber.handle(now, Input::Up { path });
        }
    }

    /// Waits, then hands over what the sockets have.
    fn wait(&mut self, until: Time, arrivals: &Sink, observer: &mut Observer<'_>) -> Result<()> {
        let open =
            self.paths.links.iter().filter_map(|link| Some((link.udp.as_ref()?.as_fd(), Interest::Read)));
        let watch = self.watch.as_ref().and_then(NetworkMonitor::fd).map(|fd| (fd, Interest::Read));
        let web = self.web.as_ref().map(|web| (web.fd(), Interest::Read));
        let reader = arrivals.reading().map(|(_, buffer)| buffer.wake());
        let set = std::iter::once((self.stop.wake().as_fd(), Interest::Read)).chain(web).chain(watch);
        let set = set.chain(open).chain(reader.map(|wake| (wake.as_fd(), Interest::Read)));
        if let Err(e) = self.poller.wait(set, until) {
            return Err(Error::system(format!("waiting for packets: {e}")));
        }
        if let Some(wake) = reader {
            wake.drain();
        }
        self.receive(false, observer);
        Ok(())
    }

    /// Hands over what the sockets have: those that are known to have something, or all of them.
    fn receive(&mut self, all: bool, observer: &mut Observer<'_>) {
        let now = self.clock.now();
        self.read_at = now;
        let mut place = 1 + usize::from(self.watch.as_ref().and_then(NetworkMonitor::fd).is_some());
        if let Some(web) = &mut self.web {
            place += 1;
            web.receive(now, &mut self.subscriber, observer);
        }
        for link in &self.paths.links {
            let Some(udp) = &link.udp else { continue };
            let ready = all || self.poller.ready(place).read;
            place += 1;
            if !ready {
                continue;
            }
            let (subscriber, path) = (&mut self.subscriber, link.path);
            for _ in 0..READS_A_TURN {
                let outcome = udp.recv(&mut self.buffers, |received| {
                    let marked = received.ecn == Some(net::Ecn::Ce);
                    let input =
                        Input::Datagrams { path, bytes: received.bytes, stride: received.stride, marked };
                    subscriber.handle(now, input);
                });
                match outcome {
                    Ok(RecvOutcome::Received { more: true }) => {}
                    Ok(RecvOutcome::IcmpError(_)) => subscriber.handle(now, Input::Unreachable { path }),
                    Ok(
                        RecvOutcome::Received { .. } | RecvOutcome::WouldBlock | RecvOutcome::TooBig { .. },
                    ) => break,
                    Err(e) => {
                        observer.notice(&format!("receiving from {}: {e}", link.peer));
                        subscriber.handle(now, Input::Unreachable { path });
                        break;
                    }
                }
            }
        }
    }
}
