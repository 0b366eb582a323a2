//! The loop that joins the subscriber, its sockets, the clock and the disk.
//!
//! One thread: wait until a socket is readable or a timer is due, hand over what came, send what the machine
//! wants sent, write what it verified, draw. Everything read in one turn is written in one turn, so that what
//! a crash can lose is what the journal does not say.

mod patience;
mod report;

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use algo::control::Algorithm;
use algo::{Machine as _, Output, Span, Time};
use mmtp::ContentId;
use mmtp::subscriber::{Event, Grouping, Input, Subscriber, Transmit};
use mmtp::wire::Reason;
use net::{
    Clock, Datagrams, Interest, NetworkMonitor, Poller, RecvBuffers, RecvOutcome, SendOutcome, WakeReceiver,
};

use super::arrivals::Arrivals;
use super::groups::Given;
use super::paths::Paths;
use super::rows::{Rows, given_up};
use super::silence::Silence;
use super::web::{Brought, Parts, Web};
use crate::args::{Get, Groups};
use crate::exit::{Code, Failure, Outcome};
use crate::host::{secret, shared_stop};
use crate::view::{Snapshot, View};

/// How often a path whose interface is gone is tried again even if the kernel announced nothing.
const REFRESH_EVERY: Span = Span::from_secs(1);
/// Older than this, what the sockets have is read again before the machine is asked.
const STALE_AFTER: Span = Span::from_millis(5);
/// Buffer sets read from one socket in one turn, so that none starves the others.
const READS_A_TURN: usize = 4;

/// A running transfer: paths that outlive one content.
pub(super) struct Transfer {
    clock: Clock,
    subscriber: Subscriber,
    paths: Paths,
    web: Option<Web>,
    sources: Vec<Source>,
    poller: Poller,
    watch: Option<NetworkMonitor>,
    wake: Arc<WakeReceiver>,
    stop: Arc<AtomicBool>,
    buffers: RecvBuffers,
    timeout: Span,
    refresh_at: Time,
    silence: Silence,
    rows: Rows,
    last: Snapshot,
    named: Option<Vec<u8>>,
    /// A source has just been ruled out.
    doubtful: bool,
    /// When the sockets were last read.
    read_at: Time,
    /// When a source that speaks mmTP was last open.
    source_at: Time,
    deserted: bool,
}

/// A source, as people know it.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) banned: Option<String>,
    pub(super) refused: Option<Reason>,
}

impl Transfer {
    /// Opens every path, to sources and to mirrors.
    ///
    /// # Errors
    /// See [`Paths::new`] and [`Web::new`].
    pub(super) fn new(
        args: &Get,
        sources: &[(String, Vec<SocketAddr>)],
        mirrors: Option<Parts>,
        view: &mut View,
    ) -> Outcome<Self> {
        let algorithm =
            Algorithm::by_name(&args.cc).ok_or_else(|| Failure::usage("unknown congestion control"))?;
        let mut subscriber = Subscriber::new(&secret()?);
        let groups = Given::new(&args.groups, args.disjoint)?;
        for line in groups.strangers(sources) {
            view.note(&format!("--groups: line {line} names a source that this transfer does not have"));
        }
        if args.groups == Groups::Auto && !args.disjoint {
            subscriber.set_grouping(Grouping::Auto);
        }
        let paths = Paths::new(args, algorithm, groups.clone(), sources, mirrors.is_none(), &mut subscriber)?;
        let known = paths.links.len();
        let web = mirrors.map(|parts| Web::new(parts, &args.via, algorithm, &groups, known, view));
        let mut web = web.transpose()?;
        let mut names: Vec<String> = sources.iter().map(|(name, _)| name.clone()).collect();
        if let Some(web) = web.as_mut().filter(|web| !web.is_alone()) {
            names.extend(web.join(&mut subscriber));
        }
        let clock = Clock::start();
        let (wake, stop) = shared_stop().map_err(|e| Failure::other(format!("cannot catch signals: {e}")))?;
        let watch =
            NetworkMonitor::new().map_err(|e| view.note(&format!("cannot watch the interfaces: {e}"))).ok();
        let now = clock.now();
        Ok(Self {
            clock,
            subscriber,
            paths,
            web,
            sources: names.into_iter().map(|name| Source { name, banned: None, refused: None }).collect(),
            poller: Poller::new(clock),
            watch,
            wake,
            stop,
            buffers: RecvBuffers::new(),
            timeout: Span::from_secs(args.timeout),
            refresh_at: now + REFRESH_EVERY,
            silence: Silence::new(now),
            rows: Rows::new(now),
            last: Snapshot::default(),
            named: None,
            doubtful: false,
            read_at: now,
            source_at: now,
            deserted: false,
        })
    }

    /// What the first source that answers calls a content.
    pub(super) fn name_of(&mut self, id: ContentId, view: &mut View) -> Outcome<Option<Vec<u8>>> {
        self.subscriber.add_download(id, true, |_| true);
        self.run(&mut Arrivals::new(Vec::new(), false), view)?;
        Ok(self.named.take())
    }

    /// A whole content, in memory.
    pub(super) fn fetch_manifest(&mut self, id: ContentId, view: &mut View) -> Outcome<Vec<u8>> {
        let mut arrivals = Arrivals::in_memory(id, &mut self.subscriber);
        self.run(&mut arrivals, view)?;
        Ok(arrivals.into_memory())
    }

    /// Runs until everything in `arrivals` is here.
    ///
    /// # Errors
    /// 3 if no source has a content, 4 if nobody answers any more, 5 if all are banned, 6 if the disk
    /// does not take it, 130 on Ctrl-C. What arrived is on the disk in any case, unless nobody can tell
    /// whether it is right.
    pub(super) fn run(&mut self, arrivals: &mut Arrivals, view: &mut View) -> Outcome {
        let mut result = self.turns(arrivals, view);
        // What came last may revoke what came before: that must not be kept.
        if result.as_ref().is_err_and(|e| e.code != Code::Corrupt)
            && let Err(e) = self.drain_web(arrivals, view)
            && e.code == Code::Corrupt
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

    fn turns(&mut self, arrivals: &mut Arrivals, view: &mut View) -> Outcome {
        self.silence.restart(self.clock.now());
        loop {
            let (stop, clock) = (self.stop.clone(), self.clock);
            let mut checking = |total_bytes: u64, done_bytes: u64| {
                view.checking(clock.now(), Snapshot { total_bytes, done_bytes, ..Snapshot::default() });
                !stop.load(Ordering::Relaxed)
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
            let deadline = self.drain(arrivals, view)?;
            arrivals.flush()?;
            if arrivals.is_done() && self.subscriber.is_idle() {
                return Ok(());
            }
            if self.subscriber.is_idle() && self.web.as_ref().is_none_or(|web| !web.is_alone()) {
                continue;
            }
            let now = self.clock.now();
            self.check_time(now, arrivals, view)?;
            if view.is_due(now) && arrivals.bytes().0 > 0 {
                self.snapshot(arrivals, false);
                view.show(now, &self.last);
            }
            let tick = now + Span::from_millis(100);
            self.wait(deadline.min(tick).min(self.refresh_at), view)?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::new(
                    Code::Interrupted,
                    "interrupted; what arrived is kept, and the same command resumes",
                ));
            }
        }
    }

    /// Does what the machines want until they want to wait; returns until when.
    ///
    /// Writing down what came may have taken long. Then what has arrived meanwhile is read before any timer
    /// is looked at, so that a slow disk is not taken for a silent network.
    fn drain(&mut self, arrivals: &mut Arrivals, view: &mut View) -> Outcome<Time> {
        let mut read_again = false;
        // Until when the mirrors wait, if nothing has happened since.
        let mut waits = Some(self.drain_web(arrivals, view)?);
        loop {
            let now = self.clock.now();
            if !read_again && now.since(self.read_at) > STALE_AFTER {
                read_again = true;
                self.receive(true, view);
                waits = None;
            }
            match (self.subscriber.poll(now), waits) {
                (Output::Wait(until), Some(until_web)) => {
                    // Only now: every source that was ruled out meanwhile is to be shown as such.
                    let hopeless =
                        std::mem::take(&mut self.doubtful) && self.subscriber.unobtainable().is_some();
                    return if hopeless { Err(given_up(&self.sources)) } else { Ok(until.min(until_web)) };
                }
                // What sources have done may leave the mirrors something to do, and what mirrors borrow then
                // may have hashes that sources are to be asked for.
                (Output::Wait(_), None) => waits = Some(self.drain_web(arrivals, view)?),
                (Output::Send(transmit), _) => {
                    self.send(now, &transmit);
                    waits = None;
                }
                (Output::Event(event), _) => {
                    self.event(event, arrivals, view)?;
                    waits = None;
                }
            }
        }
    }

    /// The same of the mirrors. That the disk fails is told when all they brought has been looked at: what is
    /// revoked must not be kept.
    fn drain_web(&mut self, arrivals: &mut Arrivals, view: &mut View) -> Outcome<Time> {
        let Some(web) = &mut self.web else { return Ok(Time::NEVER) };
        let mut written = Ok(());
        let until = web.drain(self.clock.now(), &mut self.subscriber, view, |brought| match brought {
            Brought::Block { .. } | Brought::Complete if written.is_err() => Ok(()),
            Brought::Block { block, bytes, cv } => {
                written = arrivals.block(0, block, bytes, cv);
                Ok(())
            }
            Brought::Revoked(blocks) => arrivals.revoked(0, blocks),
            Brought::Liar => arrivals.distrust(0),
            Brought::Disagree => arrivals.discard(0),
            // It was said that what is there is kept as it is.
            Brought::Complete if self.stop.load(Ordering::Relaxed) => Ok(()),
            Brought::Complete => arrivals.complete(0),
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

    fn event(&mut self, event: Event, arrivals: &mut Arrivals, view: &mut View) -> Outcome {
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
                    web.banned(self.clock.now(), mirror, block, &mut self.subscriber);
                }
                let source = &mut self.sources[usize::from(source)];
                let reason = format!("wrong bytes in block {block}");
                view.note(&format!("{}: {reason}: banned", source.name));
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
                view.note(&format!("{}: {reason}", source.name));
                source.refused = Some(reason);
                self.doubtful = true;
                Ok(())
            }
            Event::Groups { groups } => {
                view.note(&self.paths.describe(&groups));
                Ok(())
            }
            Event::Path { .. } => Ok(()),
        }
    }

    fn refresh(&mut self, now: Time, view: &mut View) {
        let (down, up) = self.paths.refresh(&mut self.subscriber);
        for (paths, word) in [(&down, "gone"), (&up, "back")] {
            for path in paths {
                if let Some(link) = self.paths.links.iter().find(|link| link.path == *path) {
                    view.note(&format!("path to {} via {} is {word}", link.peer, link.via));
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
    fn wait(&mut self, until: Time, view: &mut View) -> Outcome {
        let open =
            self.paths.links.iter().filter_map(|link| Some((link.udp.as_ref()?.as_fd(), Interest::Read)));
        let watch = self.watch.as_ref().and_then(NetworkMonitor::fd).map(|fd| (fd, Interest::Read));
        let web = self.web.as_ref().map(|web| (web.fd(), Interest::Read));
        let set = std::iter::once((self.wake.as_fd(), Interest::Read)).chain(web).chain(watch).chain(open);
        if let Err(e) = self.poller.wait(set, until) {
            return Err(Failure::other(format!("waiting for packets: {e}")));
        }
        if self.poller.ready(0).read {
            self.wake.drain();
        }
        self.receive(false, view);
        Ok(())
    }

    /// Hands over what the sockets have: those that are known to have something, or all of them.
    fn receive(&mut self, all: bool, view: &mut View) {
        let now = self.clock.now();
        self.read_at = now;
        let mut place = 1 + usize::from(self.watch.as_ref().and_then(NetworkMonitor::fd).is_some());
        if let Some(web) = &mut self.web {
            place += 1;
            web.receive(now, &mut self.subscriber, view);
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
                        view.note(&format!("receiving from {}: {e}", link.peer));
                        subscriber.handle(now, Input::Unreachable { path });
                        break;
                    }
                }
            }
        }
    }
}
