//! Fetches contents from sources that speak mmTP, from mirrors, or from both, and verifies them as they
//! arrive. It is a stage of the event loop.
//!
//! The stage connects the subscriber, its paths, the mirrors and the disk: it hands arrivals to the machines,
//! sends the packets that they want to send, and writes the blocks that they have verified. Bytes that are
//! read in one turn are written in that turn, so a crash can lose only bytes that the journal does not list.

mod report;
mod stage;

use std::net::SocketAddr;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::subscriber::{Event, Grouping, Input, PathId, Subscriber, Transmit};

use super::event_loop::{Context, EventLoop};
use super::groups::{GroupPolicy, Groups};
use super::mirror_driver::{Findings, MirrorConfig, MirrorDriver, PoolEvent};
use super::network_source::Network;
use super::origin::host;
use super::rate_meter::RateMeter;
use super::request::Request;
use super::sink::{Here, Sink};
use super::source_status::{Source, given_up};
use super::udp_paths::UdpPaths;
use crate::event::CHECKING_PART;
use crate::filenames::show;
use crate::{Error, Progress, Result, Stop};

/// The note that is shown while a complete file is read again to check it.
pub(super) const CHECKING_WHOLE: &str = "checking the whole";

/// Returns a callback for a check that reads existing bytes. The callback shows how many bytes have been
/// read, and stops the check if the caller stops the transfer.
pub(super) fn checking(cx: &mut Context<'_, '_>, what: &'static str) -> impl FnMut(u64, u64) -> bool {
    let Context { world, observer, .. } = cx;
    move |total_bytes, checked_bytes| {
        observer.checking(world.now(), what, total_bytes, checked_bytes);
        !observer.is_stopped()
    }
}

/// Runs a transfer. Its paths are kept from one content to the next.
pub(super) struct ContentFetch {
    subscriber: Subscriber,
    paths: UdpPaths,
    mirrors: Option<MirrorDriver>,
    sources: Vec<Source>,
    stop: Stop,
    rows: RateMeter,
    last: Progress,
    named: Option<Vec<u8>>,
    /// Whether a source has been ruled out since it was last checked that all contents can still be fetched.
    doubtful: bool,
    /// The time at which a source that speaks mmTP was last of use (open, and sending the hashes that mirrors
    /// wait for), or at which the transfer began.
    source_at: Time,
    /// Whether a source was ever open.
    source_answered: bool,
    /// The number of packets with hashes that had arrived by `source_at`.
    hashes: u64,
    deserted: bool,
    /// The network through which the paths lead, if there is one, and whether its groups of paths are used.
    network: Option<(Network, bool)>,
}

/// One run of a [`ContentFetch`], until every content in `arrivals` is complete or given up.
struct Run<'a> {
    fetch: &'a mut ContentFetch,
    arrivals: &'a mut Sink,
    /// Whether a lack of arrivals is not counted as silence in this turn: a part has just been checked, or
    /// the transfer waits for the reader.
    busy: bool,
}

impl ContentFetch {
    /// Opens every path, to sources and to mirrors.
    ///
    /// # Errors
    /// The errors of [`UdpPaths::new`] and [`MirrorDriver::new`].
    pub(super) fn new(
        request: &Request,
        sources: &[(String, Vec<SocketAddr>)],
        mirrors: Option<MirrorConfig>,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Self> {
        let needed = mirrors.is_none();
        Self::assemble(request, sources, mirrors, needed, events)
    }

    /// Opens every path through a network.
    ///
    /// # Errors
    /// `Usage` if the groups are not valid, `Unreachable` if no path can be opened.
    pub(super) fn through(
        request: &Request,
        network: Network,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Self> {
        let hosts: Vec<_> = network.hosts().into_iter().map(|name| (name, Vec::new())).collect();
        let mut new = Self::assemble(request, &hosts, None, false, events)?;
        let ways = network.ways();
        // The network knows which paths share a bottleneck, so this need not be detected.
        let grouped = request.groups == Groups::Auto;
        if grouped {
            new.subscriber.set_grouping(Grouping::Given);
        }
        new.network = Some((network, grouped));
        new.paths.follow(&ways, grouped, &mut new.subscriber, events.context().world);
        if new.paths.links.is_empty() {
            return Err(Error::unreachable("none of the paths through the network can be opened here"));
        }
        Ok(new)
    }

    /// Uses the new paths if the network has changed.
    fn follow_network(&mut self, cx: &mut Context<'_, '_>) {
        let Some((network, grouped)) = &mut self.network else { return };
        if !network.has_changed(cx.observer) {
            return;
        }
        let now = cx.now();
        let changed = self.paths.follow(&network.ways(), *grouped, &mut self.subscriber, cx.world);
        self.tell_changed(now, changed);
    }

    /// Reports to the subscriber which paths went down and which came up.
    fn tell_changed(&mut self, now: Time, (down, up): (Vec<PathId>, Vec<PathId>)) {
        down.into_iter().for_each(|path| self.subscriber.handle(now, Input::Down { path }));
        up.into_iter().for_each(|path| self.subscriber.handle(now, Input::Up { path }));
    }

    fn assemble(
        request: &Request,
        sources: &[(String, Vec<SocketAddr>)],
        mirrors: Option<MirrorConfig>,
        needed: bool,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Self> {
        if let Some(config) = &mirrors {
            config.look_up(events)?;
        }
        let cx = &mut events.context();
        let algorithm = request.algorithm;
        let mut subscriber = Subscriber::new(&cx.world.secret()?);
        let groups = GroupPolicy::new(&request.groups)?;
        let of_mirrors = mirrors.iter().flat_map(|config| &config.mirrors);
        let hosts: Vec<String> = of_mirrors.map(|mirror| host(&mirror.url)).collect();
        for line in groups.strangers(sources, &hosts) {
            cx.observer
                .notice(&format!("`groups`: line {line} names a source that this transfer does not have"));
        }
        if request.groups == Groups::Auto {
            subscriber.set_grouping(Grouping::Auto);
        }
        let paths =
            UdpPaths::new(request, algorithm, groups.clone(), sources, needed, &mut subscriber, cx.world)?;
        let known = paths.links.len();
        let mirrors =
            mirrors.map(|parts| MirrorDriver::new(parts, &request.links.ends, algorithm, groups, known, cx));
        let mut mirrors = mirrors.transpose()?;
        let mut names: Vec<String> = sources.iter().map(|(name, _)| name.clone()).collect();
        if let Some(mirrors) = mirrors.as_mut().filter(|mirrors| !mirrors.is_alone()) {
            names.extend(mirrors.join(&mut subscriber));
        }
        let now = cx.now();
        Ok(Self {
            subscriber,
            paths,
            mirrors,
            sources: names.into_iter().map(|name| Source { name, banned: None, refused: None }).collect(),
            stop: cx.observer.stop().clone(),
            rows: RateMeter::new(now),
            last: Progress::default(),
            named: None,
            doubtful: false,
            source_at: now,
            source_answered: false,
            hashes: 0,
            deserted: false,
            network: None,
        })
    }

    /// Returns the name of a content, as the first source that answers gives it.
    pub(super) fn name_of(
        &mut self,
        id: ContentId,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Option<Vec<u8>>> {
        self.subscriber.add_download(id, true, |_| true);
        self.run(&mut Sink::new(Vec::new(), false), events)?;
        Ok(self.named.take())
    }

    /// Fetches a whole content into memory.
    pub(super) fn fetch_manifest(
        &mut self,
        id: ContentId,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Vec<u8>> {
        let mut arrivals = Sink::in_memory(id, &mut self.subscriber);
        self.run(&mut arrivals, events)?;
        Ok(arrivals.into_memory())
    }

    /// Runs until every content in `arrivals` is complete or given up.
    ///
    /// # Errors
    /// `NotFound` if no source has a content, `Unreachable` if no source answers any more, `Corrupt` if all
    /// sources are banned, `Target` if the disk fails, `Interrupted` if the caller stops the transfer. What
    /// arrived is on the disk in any case.
    pub(super) fn run(&mut self, arrivals: &mut Sink, events: &mut EventLoop<'_, '_>) -> Result<()> {
        events.run(&mut Run { fetch: self, arrivals, busy: false })
    }

    /// Requests as many more contents as may be open at once; returns whether there were any.
    fn want(&mut self, arrivals: &mut Sink, cx: &mut Context<'_, '_>) -> Result<bool> {
        let Self { subscriber, mirrors, .. } = self;
        let mut checking = checking(cx, CHECKING_PART);
        let mut want = |id: ContentId, here: Here<'_>| match mirrors.as_mut() {
            Some(mirrors) if mirrors.is_alone() => Ok((0, mirrors.want(here)?)),
            mirrors => {
                let download = subscriber.add_download(id, false, |block| here.there.contains(block));
                if let Some(mirrors) = mirrors {
                    mirrors.join_download(download, subscriber);
                }
                Ok((download, here.there))
            }
        };
        let any = arrivals.advance(&mut want, &mut checking)?;
        drop(checking);
        arrivals.take_notices().iter().for_each(|notice| cx.observer.notice(notice));
        if let Some(mirrors) = mirrors {
            mirrors.leave_out_unwanted(cx.now(), subscriber, cx.observer);
        }
        Ok(any)
    }

    /// Carries out the outputs of the machines until they wait. Returns the time until which they wait, or
    /// `None` if the work has taken so long that arrivals must be read first.
    fn drain(&mut self, arrivals: &mut Sink, cx: &mut Context<'_, '_>) -> Result<Option<Time>> {
        // The time until which the mirrors wait; `None` if something has happened since they reported it.
        let mut waits = Some(self.drain_mirrors(arrivals, cx)?);
        loop {
            if cx.is_stale() {
                return Ok(None);
            }
            let now = cx.now();
            match (self.subscriber.poll(now), waits) {
                (Output::Wait(until), Some(until_mirrors)) => {
                    // This happens only now, so that every source that was ruled out meanwhile is shown as
                    // ruled out.
                    if std::mem::take(&mut self.doubtful) && self.give_up(arrivals)? {
                        waits = None;
                        continue;
                    }
                    return Ok(Some(until.min(until_mirrors)));
                }
                // Events of sources may give the mirrors something to do, and blocks that the mirrors then
                // reserve may have hashes that sources must be asked for.
                (Output::Wait(_), None) => waits = Some(self.drain_mirrors(arrivals, cx)?),
                (Output::Send(transmit), _) => {
                    self.send(now, &transmit, cx);
                    waits = None;
                }
                (Output::Event(event), _) => {
                    self.event(event, arrivals, cx)?;
                    waits = None;
                }
            }
        }
    }

    /// Gives up every content that no source has any more; returns whether there was one.
    ///
    /// # Errors
    /// The reason, if no other content can be fetched either.
    fn give_up(&mut self, arrivals: &mut Sink) -> Result<bool> {
        let mut any = false;
        while let Some(download) = self.subscriber.unobtainable() {
            let has_sources = self.sources.iter().any(|source| source.banned.is_none());
            if !(arrivals.has_several() && has_sources) {
                return Err(given_up(&self.sources, arrivals.reading().is_none()));
            }
            arrivals.give_up(download)?;
            self.subscriber.abandon(download);
            any = true;
        }
        Ok(any)
    }

    /// Carries out the outputs of the mirrors until they wait; returns the time until which they wait. An
    /// error of the disk is returned only after all delivered blocks have been handled, because revoked
    /// blocks must not be kept.
    fn drain_mirrors(&mut self, arrivals: &mut Sink, cx: &mut Context<'_, '_>) -> Result<Time> {
        let Some(mirrors) = &mut self.mirrors else { return Ok(Time::NEVER) };
        let mut written = Ok(());
        let judged = mirrors.is_judged();
        let mut is_wrong = false;
        let until = mirrors.drain(&mut self.subscriber, cx, |brought, cx| {
            match brought {
                PoolEvent::Block { .. } | PoolEvent::Complete if written.is_err() => {}
                PoolEvent::Block { block, bytes, cv, mark } => {
                    written = arrivals.block(0, block, bytes, cv, mark);
                }
                PoolEvent::Revoked(blocks) => arrivals.revoked(0, blocks)?,
                PoolEvent::TriedAlone { url } => arrivals.tried_alone(0, &url)?,
                PoolEvent::Liar { origin } => arrivals.distrust(0, &origin),
                // The caller was told that the bytes that have arrived are kept as they are.
                PoolEvent::Complete if self.stop.is_stopped() => {}
                PoolEvent::Complete => {
                    let mut checking = checking(cx, CHECKING_WHOLE);
                    is_wrong = judged && arrivals.needs_others(0, &mut checking)?;
                    if !is_wrong {
                        arrivals.complete(0, &mut checking)?;
                    }
                }
            }
            Ok(())
        })?;
        if is_wrong {
            self.is_wrong(arrivals, cx)?;
        }
        written.map(|()| until)
    }

    /// Handles a content that is wrong although all of it has arrived. If this result is final, the content
    /// is finished, which reports the error; otherwise the bytes that have arrived are kept for another
    /// variant.
    fn is_wrong(&mut self, arrivals: &mut Sink, cx: &mut Context<'_, '_>) -> Result<()> {
        let Some(mirrors) = &mut self.mirrors else { return Ok(()) };
        let (url, is_last) = mirrors.on_wrong();
        if let Some(url) = url {
            arrivals.refute(0, &url)?;
        }
        match is_last {
            true => arrivals.complete(0, &mut checking(cx, CHECKING_WHOLE)),
            false => Err(Error::corrupt("the whole of what came is not the file that is wanted")),
        }
    }

    /// Returns the findings of this attempt about its mirrors.
    pub(super) fn findings(&self) -> Findings {
        self.mirrors.as_ref().map(MirrorDriver::findings).unwrap_or_default()
    }

    fn send(&mut self, now: Time, transmit: &Transmit, cx: &mut Context<'_, '_>) {
        let link = self.paths.links.iter().find(|link| link.path == transmit.path);
        let Some((link, socket)) = link.and_then(|link| Some((link, link.socket?))) else { return };
        if !cx.world.send(socket, &link.framed(&transmit.bytes)) {
            self.subscriber.handle(now, Input::Unreachable { path: transmit.path });
        }
    }

    fn event(&mut self, event: Event, arrivals: &mut Sink, cx: &mut Context<'_, '_>) -> Result<()> {
        match event {
            Event::Block { download, block, bytes, cv } => arrivals.block(download, block, bytes, cv, 0),
            Event::Complete { download } => arrivals.complete(download, &mut checking(cx, CHECKING_WHOLE)),
            Event::Meta { name, .. } => {
                self.named = Some(name);
                Ok(())
            }
            Event::Banned { source, block, .. } => {
                if let Some(mirrors) = &mut self.mirrors
                    && let Some(mirror) = mirrors.mirror_of(source)
                {
                    mirrors.ban(cx.now(), mirror, block, &mut self.subscriber);
                }
                let source = &mut self.sources[usize::from(source)];
                let reason = format!("wrong bytes in block {block}");
                cx.observer.banned(&source.name, &reason);
                source.banned = Some(reason);
                self.doubtful = true;
                Ok(())
            }
            Event::CacheDistrusted { node, .. } => {
                let name =
                    self.network.as_ref().map_or_else(|| node.to_string(), |(network, _)| network.node(node));
                cx.observer.warning(&format!(
                    "the cache on {name} sent wrong bytes, or its source did: caches are asked no more on \
                     that path, and these bytes come again"
                ));
                Ok(())
            }
            // More about this mirror has been reported already.
            Event::Refused { source, .. }
                if self.mirrors.as_ref().is_some_and(|m| m.mirror_of(source).is_some()) =>
            {
                self.doubtful = true;
                Ok(())
            }
            Event::Refused { source, download, reason } => {
                let source = &mut self.sources[usize::from(source)];
                match arrivals.path_of(download).filter(|_| arrivals.has_several()) {
                    // The source may have the other contents.
                    Some(path) => {
                        cx.observer.notice(&format!("{}: {}: {reason}", source.name, show(&path)));
                    }
                    None => {
                        cx.observer.notice(&format!("{}: {reason}", source.name));
                        source.refused = Some(reason);
                    }
                }
                self.doubtful = true;
                Ok(())
            }
            Event::Groups { groups } => {
                let groups = self.path_groups(cx.now(), &groups);
                cx.observer.groups(groups);
                Ok(())
            }
            Event::Path { .. } => Ok(()),
        }
    }
}
