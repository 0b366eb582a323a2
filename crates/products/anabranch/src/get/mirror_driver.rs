//! The HTTP part of a transfer: mirrors, the routes to them, and the pool that they share.
//!
//! Joins three parts that know nothing of each other: the machine that decides which range is asked of which
//! mirror ([`anabranch_mirror::range_scheduler`]), the client that asks ([`anabranch_http::client`]), and the
//! pool of missing blocks. That is a [`VerifiedPool`](verified_pool::VerifiedPool) where mirrors alone have
//! the content, and the subscriber where sources that speak mmTP have it too: it lends blocks to the mirrors.

mod answers;
mod comparison;
mod connections;
mod part;
mod progress;
mod without_sources;

use std::ops::Range;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Output, Time};
use anabranch_http::client::{FetchError, FetchRequest, RequestKind};
use anabranch_mirror::range_scheduler::Event::StateChanged;
use anabranch_mirror::range_scheduler::{Command, Input, MirrorId, RangeScheduler};
use anabranch_mirror::variants::Differences;
use anabranch_mirror::verified_pool::{self, Check};
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::subscriber::{DownloadId, SourceId, Subscriber};
use anabranch_net::Egress;

use super::discovered_file::Mirror;
use super::event_loop::Context;
use super::groups::GroupPolicy;
use super::origin::origin_text;
use super::pool::{PoolState, with_pool};
use super::routes::Route;
use super::server_status::{ServerStatus, none_left};
use crate::event::Observer;
use crate::{Error, Result};

/// What is done about a mirror whose `ETag` or date has changed since it was asked first. Either its file has
/// changed, or the change means nothing: some servers send another `ETag` with each answer, and some are
/// several machines with an `ETag` each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangedVersion {
    /// The mirror is used without its version, because the hash of the whole file tells what is right.
    Ignored,
    /// What it has is taken from one answer: nothing has come of it yet.
    OneAnswer,
    /// It is given up.
    Out,
}

/// What an attempt finds out of the variant that its mirrors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All of it was here, and the hash of the whole is of something else.
    Wrong,
    /// Mirrors have different bytes.
    Differ,
}

/// What an attempt finds out of its mirrors, for the next one.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) found: Option<Found>,
    /// Whether every block that counted came from the only mirror of the attempt, of the version that it has
    /// now.
    pub(super) is_pure: bool,
    /// The blocks in which mirrors differ, by their numbers in the attempt.
    pub(super) differences: Differences,
    /// Mirrors that have another version than before.
    pub(super) changed: Vec<MirrorId>,
    /// Bytes that each mirror has brought.
    pub(super) brought: Vec<u64>,
    /// The mirror that an earlier transfer tried alone.
    pub(super) tried_before: Option<MirrorId>,
}

/// What is known of a mirror.
struct MirrorState {
    status: ServerStatus,
    mirror: Mirror,
    /// What the subscriber knows it by, where that lends.
    source: Option<SourceId>,
    /// Whether it has been said that it is kept in reserve, or that all others are.
    reserve: bool,
    /// How many requests for parts it has answered with them.
    answers: u64,
    /// What is done about an `ETag` or a date that has changed since the mirror was first asked; `None` if it
    /// has not changed.
    changed: Option<ChangedVersion>,
}

/// What the pool of the mirrors reports.
pub(super) enum PoolEvent {
    /// A block that is verified as far as it can be. `mark` is the number of its mirror: see
    /// [`Slot::mark`](crate::target::journal::Slot::mark).
    Block { block: u64, bytes: Vec<u8>, cv: anabranch_mmtp::tree::ChainingValue, mark: u8 },
    /// Blocks that turned out to be wrong.
    Revoked(Range<u64>),
    /// The mirror of this URL is tried alone, and has brought something.
    TriedAlone { url: String },
    /// The mirror of this origin lied, as comparisons with others show: nothing else tells what is right.
    Liar { origin: String },
    /// All of it is here.
    Complete,
}

/// Everything about HTTP in a transfer.
pub(super) struct MirrorDriver {
    config: MirrorConfig,
    machine: RangeScheduler,
    mirrors: Vec<MirrorState>,
    network: Routing,
    pool: PoolState,
    /// What decides which parts are compared.
    seed: [u8; 32],
    /// What the journal calls the version of each mirror in marks.
    numbers: Vec<Option<u8>>,
    /// Since when samples of other mirrors are waited for.
    waiting: Option<Time>,
    /// Whether it has been said that some are not waited for.
    has_warned: bool,
    /// Mirrors that are not asked because of an earlier transfer, until they are given up, each with why.
    unwanted: Vec<(MirrorId, FetchError)>,
    /// Whether blocks are reserved with the subscriber and a leaf list gave it the hashes of all blocks, so
    /// that sources are not needed to verify them.
    proven: bool,
    /// No mirror is asked for this block or later ones.
    horizon: u64,
    found: Option<Found>,
    /// See [`Findings`].
    is_pure: bool,
    tried_before: Option<MirrorId>,
}

/// The ways to mirrors.
struct Routing {
    routes: Vec<Route>,
    /// The local ends that the user named.
    named: Vec<Egress>,
    algorithm: Algorithm,
    groups: GroupPolicy,
    first_group: usize,
    /// The links have changed, and some name is still being looked up for that.
    awaits_names: bool,
}

/// What a [`MirrorDriver`] is made of.
#[derive(Debug)]
pub(super) struct MirrorConfig {
    pub(super) mirrors: Vec<Mirror>,
    pub(super) length: u64,
    /// How parts are checked. If blocks are reserved with the subscriber, this is how they are checked once
    /// no source answers any more.
    pub(super) check: Check,
    /// Whether blocks are reserved with the subscriber: other sources have the content too.
    pub(super) subscriber_pool: bool,
    /// Whether a later transfer finds what this one has brought.
    pub(super) kept: bool,
    /// Whether a hash of the whole tells what is right, none of the parts is known, and another variant can
    /// be tried.
    pub(super) judged: bool,
    /// Whether only what the only mirror brings counts.
    pub(super) is_alone: bool,
    /// Whether there are other variants to try, or servers that could not be asked.
    pub(super) has_others: bool,
    /// URLs of other variants: what they brought does not count.
    pub(super) others: Vec<String>,
    /// How it is verified without sources: a clause.
    pub(super) verified_alone: String,
    /// The voucher for the hashes of the parts, as [`VouchedBy::according`](crate::VouchedBy::according) has
    /// it.
    pub(super) according: String,
}

impl MirrorDriver {
    /// Makes the mirrors sources of the subscriber, with which they reserve blocks; returns their names.
    pub(super) fn join(&mut self, subscriber: &mut Subscriber) -> Vec<String> {
        for state in &mut self.mirrors {
            state.source = subscriber.add_source();
        }
        self.mirrors
            .iter()
            .filter(|state| state.source.is_some())
            .map(|state| state.status.name.clone())
            .collect()
    }

    /// Whether mirrors alone have the content.
    pub(super) const fn is_alone(&self) -> bool {
        matches!(self.pool, PoolState::Check(_) | PoolState::Plain(_))
    }

    /// The download whose blocks mirrors bring, if only sources have their hashes.
    pub(super) const fn depends_on_sources(&self) -> Option<DownloadId> {
        match self.pool {
            PoolState::Subscriber(download) if !self.proven => Some(download),
            _ => None,
        }
    }

    /// How it is verified without sources: a clause.
    pub(super) fn verified_alone(&self) -> &str {
        &self.config.verified_alone
    }

    /// Whether some mirror may still bring something.
    pub(super) fn can_supply(&self) -> bool {
        self.machine.has_usable_connection()
    }

    /// The subscriber wants the content: mirrors reserve blocks with it. A known leaf list spares asking
    /// sources for pages.
    pub(super) fn join_download(&mut self, download: DownloadId, subscriber: &mut Subscriber) {
        if let PoolState::Subscribing(check) = &mut self.pool {
            match std::mem::replace(check, Check::Nothing) {
                Check::Leaves(leaves) => self.proven = subscriber.set_leaves(download, leaves),
                check => self.config.check = check,
            }
            self.pool = PoolState::Subscriber(download);
        }
        for (number, state) in self.mirrors.iter().enumerate() {
            if let Some(source) = state.source
                && !self.network.routes.iter().any(|route| usize::from(route.mirror) == number)
            {
                subscriber.mark_unavailable(source, download);
            }
        }
    }

    /// No mirror is asked for this block or later ones. The subscriber has to be told too, if it lends.
    pub(super) fn set_horizon(&mut self, end_block: u64) {
        self.horizon = end_block;
        if let PoolState::Plain(plain) = &mut self.pool {
            plain.set_horizon(end_block);
        }
    }

    /// Gives a mirror up.
    fn out(
        &mut self,
        mirror: MirrorId,
        error: &FetchError,
        subscriber: &mut Subscriber,
        observer: &mut Observer<'_>,
    ) {
        let Some(state) = self.mirrors.get_mut(usize::from(mirror)) else { return };
        if state.status.out.is_some() {
            return;
        }
        state.status.give_up(error, state.mirror.trusted, observer);
        match &mut self.pool {
            PoolState::Plain(plain) => plain.mirror_gone(mirror),
            PoolState::Subscriber(download) => {
                if let Some(source) = state.source {
                    subscriber.mark_unavailable(source, *download);
                }
            }
            _ => {}
        }
    }

    /// Bans a mirror that sent wrong bytes, as the subscriber or the pool found out and has reported.
    pub(super) fn ban(&mut self, now: Time, mirror: MirrorId, block: u64, subscriber: &mut Subscriber) {
        let reason = self.wrong_bytes(block);
        let Some(state) = self.mirrors.get_mut(usize::from(mirror)) else { return };
        state.status.ban(reason);
        self.no_more(now, mirror, subscriber);
    }

    /// Why a mirror is banned.
    fn wrong_bytes(&self, block: u64) -> String {
        format!("wrong bytes in block {block}{}", self.config.according)
    }

    /// The mirror that a source of the subscriber is.
    pub(super) fn mirror_of(&self, source: SourceId) -> Option<MirrorId> {
        let found = self.mirrors.iter().position(|state| state.source == Some(source))?;
        MirrorId::try_from(found).ok()
    }

    /// Follows the machine until it waits; returns until when.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if mirrors differ and nothing tells which is right;
    /// what the last one failed with if none is left.
    pub(super) fn drain(
        &mut self,
        subscriber: &mut Subscriber,
        cx: &mut Context<'_, '_>,
        mut each: impl FnMut(PoolEvent, &mut Context<'_, '_>) -> Result<()>,
    ) -> Result<Time> {
        let now = cx.now();
        loop {
            let Self { config, machine, mirrors, network, pool, .. } = self;
            let (routes, length) = (&network.routes, config.length);
            let until = with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
                loop {
                    match machine.poll(now, pool) {
                        Output::Wait(until) => return until,
                        Output::Event(StateChanged { .. }) => {}
                        Output::Send(Command::Fetch { connection, fetch, first_byte, end_byte }) => {
                            let Some(end) = routes.get(connection) else { continue };
                            let mirror = &mirrors[usize::from(end.mirror)].mirror;
                            let kind = RequestKind::Range {
                                first: first_byte,
                                end: end_byte,
                                length,
                                // Where bytes are verified as they come, the file may have changed since
                                // discovery, so no validator is sent.
                                validator: mirror.seen_at.as_ref().and(mirror.validator.clone()),
                                // For want of a strong validator.
                                modified: mirror.date.clone(),
                                seen_at: mirror.seen_at.clone(),
                            };
                            let (url, trusted) = (mirror.url.as_str().to_owned(), mirror.trusted);
                            let via = end.via.clone();
                            cx.world
                                .fetch(fetch, FetchRequest { route: connection, via, url, trusted, kind });
                        }
                        Output::Send(Command::Cancel { fetch }) => cx.world.cancel(fetch),
                        Output::Send(Command::Window { connection, bytes }) => {
                            cx.world.window(connection, bytes);
                        }
                    }
                }
            });
            if !self.drain_events(now, subscriber, cx, &mut each)? {
                self.wait_for_samples(now, cx.observer);
                if !self.machine.has_usable_connection() && self.is_alone() && self.is_wanting() {
                    return Err(self.given_up());
                }
                return Ok(until.min(self.look_again_at(now)));
            }
        }
    }

    /// Handles the events of the pool; returns whether the machine has to be polled again.
    fn drain_events(
        &mut self,
        now: Time,
        subscriber: &mut Subscriber,
        cx: &mut Context<'_, '_>,
        each: &mut impl FnMut(PoolEvent, &mut Context<'_, '_>) -> Result<()>,
    ) -> Result<bool> {
        let PoolState::Plain(plain) = &mut self.pool else { return Ok(false) };
        let events: Vec<verified_pool::Event> = plain.events().collect();
        let only_compares = plain.only_compares();
        let mut again = false;
        for event in events {
            again |= !matches!(event, verified_pool::Event::Verified { .. });
            match event {
                verified_pool::Event::Verified { mirror, block, bytes, cv } => {
                    let mark = if only_compares { self.mark_of(mirror) } else { 0 };
                    self.is_pure &= !self.has_changed(mirror);
                    each(PoolEvent::Block { block, bytes, cv, mark }, cx)?;
                    if let Some(url) = self.newly_alone() {
                        each(PoolEvent::TriedAlone { url }, cx)?;
                    }
                }
                verified_pool::Event::Revoked { blocks } => each(PoolEvent::Revoked(blocks), cx)?,
                verified_pool::Event::Complete => each(PoolEvent::Complete, cx)?,
                verified_pool::Event::Banned { mirror, block } if self.config.judged && only_compares => {
                    let (name, place) = (self.name(mirror), place_of(block));
                    cx.observer.notice(&format!(
                        "{name}: other bytes than others have ({place}): not asked until the hash of the \
                         whole has told whether these are right"
                    ));
                    self.no_more(now, mirror, subscriber);
                }
                verified_pool::Event::Banned { mirror, block } => {
                    cx.observer.banned(self.name(mirror), &self.wrong_bytes(block));
                    self.ban(now, mirror, block, subscriber);
                    if only_compares && let Some(state) = self.mirrors.get(usize::from(mirror)) {
                        each(PoolEvent::Liar { origin: origin_text(&state.mirror.url) }, cx)?;
                    }
                }
                verified_pool::Event::Split { mirrors, block } => {
                    self.found = self.config.judged.then_some(Found::Differ);
                    return Err(self.conflict(&mirrors, block));
                }
            }
        }
        Ok(again)
    }

    /// A mirror is not asked any more.
    fn no_more(&mut self, now: Time, mirror: MirrorId, subscriber: &mut Subscriber) {
        let Self { machine, mirrors, pool, .. } = self;
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            machine.handle(now, Input::Banned { mirror }, pool);
        });
    }

    /// The URL of the mirror that is tried alone, returned once, when it has first brought something. For a
    /// mirror without ranges it is never returned, because its transfer begins anew after each interruption.
    fn newly_alone(&mut self) -> Option<String> {
        let state = self.mirrors.first().filter(|_| self.config.is_alone)?;
        let is_new = self.tried_before.is_none() && state.mirror.ranges;
        let url = state.mirror.url.as_str().to_owned();
        self.tried_before = Some(0).filter(|_| is_new).or(self.tried_before);
        is_new.then_some(url)
    }

    /// What this attempt has found out.
    pub(super) fn findings(&self) -> Findings {
        let differences = match &self.pool {
            PoolState::Plain(plain) => plain.differences(),
            _ => Differences::new(),
        };
        let all = 0..self.mirrors.len() as MirrorId;
        let brought = |mirror| {
            let its = self.machine.connections().filter(|one| one.mirror == mirror);
            its.map(|one| one.counters.bytes).sum()
        };
        Findings {
            found: self.found,
            is_pure: self.is_pure && self.mirrors.len() == 1,
            differences,
            changed: all.clone().filter(|mirror| self.has_changed(*mirror)).collect(),
            brought: all.map(brought).collect(),
            tried_before: self.tried_before,
        }
    }

    /// Records that all blocks are here and the whole is wrong. Returns the URL of the mirror that is thereby
    /// proved to have another file, if there is one, and whether this result is final.
    pub(super) fn on_wrong(&mut self) -> (Option<String>, bool) {
        self.found = Some(Found::Wrong);
        let is_one = self.mirrors.len() == 1 && self.is_pure;
        let its = self.mirrors.first().filter(|_| is_one && !self.has_changed(0));
        (its.map(|state| state.mirror.url.as_str().to_owned()), is_one && !self.config.has_others)
    }

    /// Whether the version of a mirror is another now than when it was asked first.
    fn has_changed(&self, mirror: MirrorId) -> bool {
        self.mirrors.get(usize::from(mirror)).is_none_or(|state| state.changed.is_some())
    }

    /// Whether a hash of the whole tells whether its mirrors are the right variant.
    pub(super) const fn is_judged(&self) -> bool {
        self.config.judged
    }

    /// The error if mirrors differ and no vote decides.
    fn conflict(&self, mirrors: &[MirrorId], block: u64) -> Error {
        let who = format!("{} have different bytes ({})", self.names(mirrors), place_of(block));
        if self.config.judged {
            return Error::corrupt(who);
        }
        if !self.config.kept {
            return Error::corrupt(format!(
                "{who}, and they are handed over as they come, before a hash of the whole could tell which \
                 are right: name one of them, or a Metalink, or fetch into a file with `checksum`"
            ));
        }
        Error::corrupt(format!(
            "{who}, and there is no hash to tell which are right: name one of them, which goes on with what \
             came from it, or give `checksum` or a Metalink"
        ))
    }

    fn names(&self, mirrors: &[MirrorId]) -> String {
        let names: Vec<&str> = mirrors.iter().map(|mirror| self.name(*mirror)).collect();
        names.join(" and ")
    }

    /// Whether mirrors are only compared with each other: no hash of the content is known.
    pub(super) fn is_hashless(&self) -> bool {
        let only_compares = matches!(&self.pool, PoolState::Plain(plain) if plain.only_compares());
        only_compares && !self.config.judged
    }

    /// The error when no mirror is left.
    fn given_up(&self) -> Error {
        let (code, why) = none_left(self.mirrors.iter().map(|state| &state.status));
        let has_brought = self.config.kept && self.brought().next().is_some();
        let have_changed = self.mirrors.iter().all(|state| state.status.has_changed);
        let advice = match has_brought && self.is_hashless() {
            false if has_brought && have_changed => {
                "what arrived is kept, and is of the file that was there before: the same `Get` fetches \
                 what is there now"
            }
            false if has_brought => "what arrived is kept: name another",
            false => "name another",
            // The mirrors changed their version, and without a hash no other URL is known to have the version
            // that arrived.
            true if have_changed => {
                "what arrived is of the version that it had, and no other URL goes on with that without a \
                 hash: remove the part to begin anew"
            }
            true => "what arrived is kept: name another beside",
        };
        code.error(format!("{why}; {advice}"))
    }

    /// The mirrors that brought something, given up or not.
    fn brought(&self) -> impl Iterator<Item = &MirrorState> {
        let reports = || self.machine.connections().zip(&self.network.routes);
        let brought = move |number: usize| {
            reports().any(|(report, route)| usize::from(route.mirror) == number && report.counters.bytes > 0)
        };
        self.mirrors.iter().enumerate().filter(move |(number, _)| brought(*number)).map(|(_, state)| state)
    }

    /// Whether only samples of other mirrors are waited for.
    pub(super) const fn is_comparing(&self) -> bool {
        self.waiting.is_some()
    }

    fn is_wanting(&self) -> bool {
        matches!(&self.pool, PoolState::Plain(plain) if plain.blocks_left() > 0)
    }

    fn name(&self, mirror: MirrorId) -> &str {
        self.mirrors.get(usize::from(mirror)).map_or("", |state| &state.status.name)
    }
}

/// The number of each mirror as a source of the subscriber.
fn sources(mirrors: &[MirrorState]) -> Vec<Option<SourceId>> {
    mirrors.iter().map(|state| state.source).collect()
}

/// Where a block is, for people.
fn place_of(block: u64) -> String {
    format!("16 KiB from byte {} on", block * BLOCK_BYTES as u64)
}
