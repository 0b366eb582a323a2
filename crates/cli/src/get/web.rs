//! The HTTP part of a transfer: mirrors, the ways to them, and the pool that they share.
//!
//! Joins three parts that know nothing of each other: the machine that decides what is asked of whom
//! ([`mirror::range_scheduler`]), the client that asks ([`anabranch_http::client`]), and who knows what is
//! missing. That is a [`VerifiedPool`] where mirrors alone have the content, and the subscriber where sources
//! that speak mmTP have it too: it lends blocks to the mirrors.

mod rows;

use std::ops::Range;
use std::os::fd::BorrowedFd;

use algo::control::Algorithm;
use algo::{Output, Span, Time};
use anabranch_http::client::{Client, Event as Answer, FetchError, FetchRequest, RequestKind};
use mirror::range_scheduler::{
    Command, ConnectionConfig, Failure as Useless, Input, MirrorId, RangeScheduler,
};
use mirror::verified_pool::{self, Check, VerifiedPool};
use mmtp::subscriber::{DownloadId, SourceId, Subscriber};
use net::Egress;

use super::groups::Given;
use super::look::{self, Mirror};
use super::pool::{Kind, with_pool};
use super::standing::{Standing, none_left, pause};
use super::ways::{NO_FAMILY, Way, all_lead, ends, has_others, way_of};
use crate::exit::{Code, Failure, Outcome};
use crate::host::secret;
use crate::view::View;

/// How long comparisons with other mirrors are waited for when everything is here.
const COMPARE_FOR: Span = Span::from_secs(3);

/// What the default, NMCC, is over TCP, whose senders lose a part of their windows at each loss and start
/// slowly by themselves: what comes back more slowly than theirs (most are CUBIC) leaves links idle.
const NMCC_OVER_TCP: &str = "nmcc-cubic";

/// A mirror, as people know it.
struct Seen {
    standing: Standing,
    mirror: Mirror,
    /// What the subscriber knows it by, where that lends.
    source: Option<SourceId>,
    /// Whether it has been said that it is kept in reserve.
    reserve: bool,
}

/// What mirrors bring.
pub(super) enum Brought {
    /// A block that is verified as far as it can be.
    Block { block: u64, bytes: Vec<u8>, cv: mmtp::tree::ChainingValue },
    /// Blocks that turned out to be wrong.
    Revoked(Range<u64>),
    /// A mirror lied, as comparisons with others show: nothing else tells what is right.
    Liar,
    /// Mirrors differ, and nothing tells what is right.
    Disagree,
    /// All of it is here.
    Complete,
}

/// Everything about HTTP in a transfer.
pub(super) struct Web {
    client: Client,
    machine: RangeScheduler,
    length: u64,
    mirrors: Vec<Seen>,
    ways: Vec<Way>,
    pool: Kind,
    /// Since when only comparisons are missing.
    comparing: Option<Time>,
    /// The subscriber lends, and knows all hashes.
    proven: bool,
}

/// What a [`Web`] is made of.
pub(super) struct Parts {
    pub(super) client: Client,
    pub(super) mirrors: Vec<Mirror>,
    pub(super) length: u64,
    pub(super) check: Check,
    /// Whether the subscriber lends: other sources have the content too.
    pub(super) lent: bool,
}

impl Web {
    /// A way for every mirror and every local address that leads there.
    ///
    /// # Errors
    /// Exit status 4 if none leads to any, or none from a named `via`.
    pub(super) fn new(
        parts: Parts,
        named: &[Egress],
        algorithm: Algorithm,
        groups: &Given,
        first_group: usize,
        view: &mut View,
    ) -> Outcome<Self> {
        let Parts { client, mirrors, length, check, lent } = parts;
        let algorithm = match Algorithm::by_name("nmcc") {
            Some(nmcc) if nmcc == algorithm => Algorithm::by_name(NMCC_OVER_TCP).unwrap_or(nmcc),
            _ => algorithm,
        };
        let mut machine = RangeScheduler::new(length);
        let (mut ways, mut seen, mut error) = (Vec::new(), Vec::new(), None);
        for (number, mirror) in (0..).zip(mirrors) {
            let name = look::host(&mirror.url);
            match ends(&mirror.url, mirror.proxied, named) {
                Ok(found) => {
                    if found.is_empty() {
                        error = Some(format!("no route to {name}"));
                    }
                    for (via, peer) in found {
                        let group = groups.of(first_group + ways.len(), &name, peer, &via);
                        let config = ConnectionConfig {
                            mirror: number,
                            group,
                            control: algorithm,
                            ranges: mirror.ranges,
                        };
                        if machine.add_connection(&config).is_some() {
                            ways.push(Way { mirror: number, via, address: peer.ip(), shut: None });
                        }
                    }
                }
                Err(e) => {
                    view.note(&format!("{name}: {e}"));
                    error = Some(format!("{name}: {e}"));
                }
            }
            seen.push(Seen { standing: Standing::new(name), mirror, source: None, reserve: false });
        }
        all_lead(named, &ways, error.as_deref())?;
        if ways.is_empty() {
            let why = error.as_deref().unwrap_or(NO_FAMILY);
            return Err(Failure::new(Code::Unreachable, format!("no way to any mirror: {why}")));
        }
        let pool = if lent { Kind::Lending(check) } else { Kind::Check(check) };
        let mut new =
            Self { client, machine, length, mirrors: seen, ways, pool, comparing: None, proven: false };
        new.tell_reserve(view);
        Ok(new)
    }

    /// Makes the mirrors sources of the subscriber, which lends them blocks; returns their names.
    pub(super) fn join(&mut self, subscriber: &mut Subscriber) -> Vec<String> {
        for seen in &mut self.mirrors {
            seen.source = subscriber.add_source();
        }
        self.mirrors
            .iter()
            .filter(|seen| seen.source.is_some())
            .map(|seen| seen.standing.name.clone())
            .collect()
    }

    /// Whether mirrors alone have the content.
    pub(super) const fn is_alone(&self) -> bool {
        matches!(self.pool, Kind::Check(_) | Kind::Plain(_))
    }

    /// A source has answered that can tell the hashes of what mirrors bring.
    pub(super) fn lend(&mut self) {
        if let Kind::Waiting(download) = self.pool {
            self.pool = Kind::Lent(download);
        }
    }

    /// Whether no source is needed for hashes.
    pub(super) const fn is_proven(&self) -> bool {
        self.proven
    }

    /// Whether some mirror may still bring something.
    pub(super) fn has_hope(&self) -> bool {
        self.machine.has_usable_connection()
    }

    /// The content is wanted of mirrors alone, but for what is here.
    pub(super) fn want(&mut self, have: impl Fn(u64) -> bool) -> Outcome {
        if let Kind::Check(check) = &mut self.pool {
            let check = std::mem::replace(check, Check::Nothing);
            let mut plain =
                VerifiedPool::new(self.length, check, have).map_err(|e| Failure::usage(e.to_string()))?;
            plain.seed(secret()?);
            self.pool = Kind::Plain(Box::new(plain));
        }
        Ok(())
    }

    /// The subscriber wants it, and lends. What is known of it spares asking sources for pages.
    pub(super) fn borrow(&mut self, download: DownloadId, subscriber: &mut Subscriber) {
        if let Kind::Lending(check) = &mut self.pool {
            if let Check::Leaves(leaves) = std::mem::replace(check, Check::Nothing) {
                self.proven = subscriber.set_leaves(download, leaves);
            }
            self.pool = if self.proven { Kind::Lent(download) } else { Kind::Waiting(download) };
        }
        for (number, seen) in self.mirrors.iter().enumerate() {
            if let Some(source) = seen.source
                && !self.ways.iter().any(|way| usize::from(way.mirror) == number)
            {
                subscriber.mark_unavailable(source, download);
            }
        }
    }

    /// Readable when something came.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.client.fd()
    }

    /// Hands over what came.
    pub(super) fn receive(&mut self, now: Time, subscriber: &mut Subscriber, view: &mut View) {
        let Self { client, machine, mirrors, ways, pool, .. } = self;
        let mut failed: Vec<(MirrorId, FetchError)> = Vec::new();
        let mut shut: Vec<(usize, FetchError)> = Vec::new();
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            client.events(|event| match event {
                Answer::Head { id, head } => {
                    if let Some(way) = ways.get(way_of(id)) {
                        mirrors[usize::from(way.mirror)].standing.fault = None;
                    }
                    match head.whole {
                        true => machine.handle(now, Input::Whole { fetch: id }, pool),
                        false => machine.handle(now, Input::Head { fetch: id }, pool),
                    }
                }
                Answer::Body { id, bytes } => {
                    machine.handle(now, Input::Body { fetch: id, bytes: &bytes }, pool);
                }
                Answer::Done { id } => machine.handle(now, Input::Done { fetch: id }, pool),
                // Whoever has given it up does not care why it failed.
                Answer::Failed { id, .. } if !machine.is_live(id) => {}
                Answer::Failed { id, error } => {
                    if let Some(way) = ways.get(way_of(id)) {
                        mirrors[usize::from(way.mirror)].standing.answered(&error);
                    }
                    let failure = match &error {
                        FetchError::ServerError { retry: Some(_), .. } | FetchError::Busy { .. } => {
                            Useless::Busy { retry: pause(&error) }
                        }
                        FetchError::Unreachable(_)
                        | FetchError::Broken(_)
                        | FetchError::ServerError { .. } => Useless::Broken,
                        FetchError::NoRanges => Useless::NoRanges,
                        FetchError::NotFound(_) => Useless::Useless,
                        // A portal, a meddling proxy or another replica may be on this way alone.
                        _ if has_others(ways, way_of(id)) => {
                            machine.handle(now, Input::Failed { fetch: id, failure: Useless::Broken }, pool);
                            let way = way_of(id);
                            machine.handle(now, Input::Down { connection: way }, pool);
                            if let Some(entry) = ways.get_mut(way) {
                                entry.shut = Some(error.to_string());
                            }
                            shut.push((way, error));
                            return;
                        }
                        _ => Useless::Useless,
                    };
                    if let Some(way) = ways.get(way_of(id))
                        && failure == Useless::Useless
                    {
                        failed.push((way.mirror, error));
                    }
                    machine.handle(now, Input::Failed { fetch: id, failure }, pool);
                }
                Answer::Sample { route, sample } => {
                    machine.handle(now, Input::Sample { connection: route, sample }, pool);
                }
            });
        });
        for (way, error) in shut {
            let Some(way) = self.ways.get(way) else { continue };
            let (name, via) = (self.name(way.mirror), &way.via);
            view.note(&format!("{name} via {via}: {error}: not asked over this way any more"));
        }
        for (mirror, error) in failed {
            self.out(mirror, &error, subscriber, view);
        }
        self.tell_reserve(view);
    }

    /// A mirror will not be asked any more.
    fn out(&mut self, mirror: MirrorId, error: &FetchError, subscriber: &mut Subscriber, view: &mut View) {
        let Some(seen) = self.mirrors.get_mut(usize::from(mirror)) else { return };
        if seen.standing.out.is_some() {
            return;
        }
        seen.standing.give_up(error, seen.mirror.trusted, view);
        match &mut self.pool {
            Kind::Plain(plain) => plain.mirror_gone(mirror),
            Kind::Lent(download) | Kind::Waiting(download) => {
                if let Some(source) = seen.source {
                    subscriber.mark_unavailable(source, *download);
                }
            }
            _ => {}
        }
    }

    /// A mirror lied, as the subscriber or the pool found out; it has been told why by a note.
    pub(super) fn banned(&mut self, now: Time, mirror: MirrorId, block: u64, subscriber: &mut Subscriber) {
        let Some(seen) = self.mirrors.get_mut(usize::from(mirror)) else { return };
        seen.standing.ban(format!("wrong bytes in block {block}"));
        let Self { machine, mirrors, pool, .. } = self;
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            machine.handle(now, Input::Banned { mirror }, pool);
        });
    }

    /// The mirror that a source of the subscriber is.
    pub(super) fn mirror_of(&self, source: SourceId) -> Option<MirrorId> {
        let found = self.mirrors.iter().position(|seen| seen.source == Some(source))?;
        MirrorId::try_from(found).ok()
    }

    /// Does what the machine wants until it wants to wait; returns until when.
    ///
    /// # Errors
    /// Exit status 5 if mirrors differ and nothing tells which is right; 3 or 5 if none is left.
    pub(super) fn drain(
        &mut self,
        now: Time,
        subscriber: &mut Subscriber,
        view: &mut View,
        mut each: impl FnMut(Brought) -> Outcome,
    ) -> Outcome<Time> {
        loop {
            let Self { client, machine, mirrors, ways, pool, length, .. } = self;
            let until = with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
                loop {
                    match machine.poll(now, pool) {
                        Output::Wait(until) => return until,
                        Output::Event(_) => {}
                        Output::Send(Command::Fetch { connection, fetch, first_byte, end_byte }) => {
                            let Some(end) = ways.get(connection) else { continue };
                            let mirror = &mirrors[usize::from(end.mirror)].mirror;
                            let kind = RequestKind::Range {
                                first: first_byte,
                                end: end_byte,
                                length: *length,
                                // Where the bytes are verified as they come, it need not be the same file.
                                validator: mirror.seen_at.as_ref().and(mirror.validator.clone()),
                                // For want of a strong validator.
                                modified: mirror.date.clone(),
                                seen_at: mirror.seen_at.clone(),
                            };
                            let (url, trusted) = (mirror.url.as_str().to_owned(), mirror.trusted);
                            client.fetch(
                                fetch,
                                FetchRequest { route: connection, via: end.via.clone(), url, trusted, kind },
                            );
                        }
                        Output::Send(Command::Cancel { fetch }) => client.cancel(fetch),
                        Output::Send(Command::Window { connection, bytes }) => {
                            client.window(connection, bytes);
                        }
                    }
                }
            });
            let news = self.news(now, subscriber, view, &mut each)?;
            if !news {
                self.compare(now, view);
                if !self.machine.has_usable_connection() && self.is_alone() && self.is_wanting() {
                    return Err(self.given_up());
                }
                return Ok(if self.comparing.is_some() { until.min(now + COMPARE_FOR) } else { until });
            }
        }
    }

    /// What the pool reports; whether it is time to look at the machine again.
    fn news(
        &mut self,
        now: Time,
        subscriber: &mut Subscriber,
        view: &mut View,
        each: &mut impl FnMut(Brought) -> Outcome,
    ) -> Outcome<bool> {
        let Kind::Plain(plain) = &mut self.pool else { return Ok(false) };
        let events: Vec<verified_pool::Event> = plain.events().collect();
        let only_compares = plain.only_compares();
        let mut again = false;
        for event in events {
            match event {
                verified_pool::Event::Verified { block, bytes, cv } => {
                    each(Brought::Block { block, bytes, cv })?;
                }
                verified_pool::Event::Revoked { blocks } => {
                    again = true;
                    each(Brought::Revoked(blocks))?;
                }
                verified_pool::Event::Complete => each(Brought::Complete)?,
                verified_pool::Event::Banned { mirror, block } => {
                    again = true;
                    let name = self.name(mirror).to_owned();
                    view.note(&format!("{name}: wrong bytes in block {block}: banned"));
                    self.banned(now, mirror, block, subscriber);
                    if only_compares {
                        each(Brought::Liar)?;
                    }
                }
                verified_pool::Event::Conflict { mirrors, block } => {
                    each(Brought::Disagree)?;
                    let names: Vec<&str> = mirrors.iter().map(|mirror| self.name(*mirror)).collect();
                    let from = block * mmtp::id::BLOCK_BYTES as u64;
                    return Err(Failure::new(
                        Code::Corrupt,
                        format!(
                            "{} have different bytes (16 KiB from byte {from} on), and there is no hash to \
                             tell which are right: name one of them, or a Metalink; what had arrived is \
                             removed, for nobody can tell which of it is right",
                            names.join(" and ")
                        ),
                    ));
                }
            }
        }
        Ok(again)
    }

    /// When everything is here but comparisons, and no mirror makes them, it goes without.
    fn compare(&mut self, now: Time, view: &mut View) {
        let Kind::Plain(plain) = &mut self.pool else { return };
        if !plain.only_checks_left() {
            self.comparing = None;
            return;
        }
        let since = *self.comparing.get_or_insert(now);
        if now.since(since) >= COMPARE_FOR || !self.machine.has_usable_connection() {
            view.note("not all parts could be compared between mirrors: too few of them answer");
            plain.waive();
        }
    }

    fn is_wanting(&self) -> bool {
        matches!(&self.pool, Kind::Plain(plain) if plain.blocks_left() > 0)
    }

    fn name(&self, mirror: MirrorId) -> &str {
        self.mirrors.get(usize::from(mirror)).map_or("", |seen| &seen.standing.name)
    }

    /// Nobody is left.
    fn given_up(&self) -> Failure {
        let (code, why) = none_left(self.mirrors.iter().map(|seen| &seen.standing));
        let kept = if self.brought().next().is_some() { "what arrived is kept: " } else { "" };
        Failure::new(code, format!("{why}; {kept}name another"))
    }

    /// The mirrors that brought something, given up or not.
    fn brought(&self) -> impl Iterator<Item = &Seen> {
        let reports = || self.machine.connections().zip(&self.ways);
        let brought = move |number: usize| {
            reports().any(|(report, way)| usize::from(way.mirror) == number && report.counters.bytes > 0)
        };
        self.mirrors.iter().enumerate().filter(move |(number, _)| brought(*number)).map(|(_, seen)| seen)
    }

    /// The URLs that brought something, right or wrong.
    pub(super) fn brought_by(&self) -> impl Iterator<Item = &str> {
        self.brought().map(|seen| seen.mirror.url.as_str())
    }

    /// Those of them that still count, with what tells that they have not changed; none with a password, for
    /// they are written down.
    pub(super) fn proven(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let good = |seen: &&Seen| seen.standing.out.is_none() && !seen.mirror.url.has_credentials();
        self.brought().filter(good).map(|seen| (seen.mirror.url.as_str(), seen.mirror.validator()))
    }

    /// The URLs that sent wrong bytes.
    pub(super) fn lied(&self) -> impl Iterator<Item = &str> {
        self.mirrors.iter().filter(|seen| seen.standing.lied).map(|seen| seen.mirror.url.as_str())
    }
}

/// What the subscriber knows each mirror by.
fn sources(mirrors: &[Seen]) -> Vec<Option<SourceId>> {
    mirrors.iter().map(|seen| seen.source).collect()
}
