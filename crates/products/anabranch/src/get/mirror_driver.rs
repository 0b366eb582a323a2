//! The HTTP part of a transfer: mirrors, the routes to them, and the pool that they share.
//!
//! Joins three parts that know nothing of each other: the machine that decides what is asked of whom
//! ([`anabranch_mirror::range_scheduler`]), the client that asks ([`anabranch_http::client`]), and who knows
//! what is missing. That is a [`VerifiedPool`] where mirrors alone have the content, and the subscriber where
//! sources that speak mmTP have it too: it lends blocks to the mirrors.

mod answers;
mod comparison;
mod connections;
mod earlier;
mod judgement;
mod progress;
mod without_sources;

use std::ops::Range;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Output, Time};
use anabranch_http::client::{FetchError, FetchRequest, RequestKind};
use anabranch_mirror::range_scheduler::Event::StateChanged;
use anabranch_mirror::range_scheduler::{Command, Input, MirrorId, RangeScheduler, State};
use anabranch_mirror::verified_pool::{self, Check, VerifiedPool};
use anabranch_mmtp::subscriber::{DownloadId, SourceId, Subscriber};
use anabranch_net::Egress;

use super::discovered_file::Mirror;
use super::event_loop::Context;
use super::groups::GroupPolicy;
use super::origin::origin_text;
use super::pool::{PoolState, with_pool};
use super::routes::Route;
use super::server_status::ServerStatus;
use super::sink::Here;
use crate::event::Observer;
use crate::target::Numbers;
use crate::{Error, Result};
use comparison::{ComparisonState, dropped, place_of};

/// What is done about a mirror whose `ETag`, or date, is another than a moment ago. Its file has changed, or
/// that says nothing: some servers give each answer another, or stand for several machines that each have
/// theirs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangedVersion {
    /// It does not count any more: a hash of the whole is known.
    Ignored,
    /// What it has is taken from one answer: nothing has come of it yet.
    OneAnswer,
    /// It is given up.
    Out,
}

/// Why a mirror is not asked that could be.
#[derive(Clone, Copy)]
enum Unwanted {
    /// It lied in an earlier transfer.
    Liar,
    /// It has another version than in an earlier transfer.
    Changed,
    /// All of it was there in an earlier transfer, and was wrong.
    Refuted,
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
    /// What is done about an `ETag` or a date that is another now; none: it is not.
    changed: Option<ChangedVersion>,
}

/// What the pool of the mirrors reports.
pub(super) enum PoolEvent {
    /// A block that is verified as far as it can be. `mark` tells who brought it: see
    /// [`Slot::mark`](crate::target::journal::Slot::mark).
    Block { block: u64, bytes: Vec<u8>, cv: anabranch_mmtp::tree::ChainingValue, mark: u8 },
    /// What mirrors brought of these blocks has been compared.
    Compared(Range<u64>),
    /// Blocks that turned out to be wrong.
    Revoked(Range<u64>),
    /// Blocks that do not count while another mirror is tried alone, and are kept.
    Shelved(Range<u64>),
    /// Of these, what counts again.
    Restored(Range<u64>),
    /// All of what the mirror of this URL has was here, and is wrong. `version`: all of that is known to be
    /// of the version that it has now.
    Refuted { url: String, version: bool },
    /// The mirror of this URL is tried alone, and has brought something.
    TriedAlone { url: String },
    /// The mirror of this origin and URL lied, as comparisons with others show: nothing else tells what is
    /// right.
    Liar { origin: String, url: String },
    /// Mirrors differ, and nothing tells what is right. What they brought is revoked if what earlier
    /// transfers left stays; else nothing does.
    Disagree { earlier_stays: bool },
    /// All of it is here. The answer is whether it is right; where it is not, another mirror is tried.
    Complete,
    /// All of it is here, it is wrong, and there is no other mirror to try: they all have it, or `differ`.
    Wrong { differ: bool, advice: &'static str },
}

/// Everything about HTTP in a transfer.
pub(super) struct MirrorDriver {
    machine: RangeScheduler,
    length: u64,
    mirrors: Vec<MirrorState>,
    routes: Vec<Route>,
    /// How routes are made.
    named: Vec<Egress>,
    algorithm: Algorithm,
    groups: GroupPolicy,
    first_group: usize,
    /// The links have changed, and some name is still being looked up for that.
    awaits_names: bool,
    pool: PoolState,
    /// What decides which parts are compared.
    seed: [u8; 32],
    /// What the journal calls each mirror in marks.
    numbers: Vec<Numbers>,
    comparison: ComparisonState,
    /// Mirrors that are not asked because of an earlier transfer, until they are given up.
    unwanted: Vec<(MirrorId, Unwanted)>,
    /// The subscriber lends, and knows all hashes.
    proven: bool,
    /// What is known without sources, where the subscriber lends.
    check_alone: Check,
    /// Nobody is asked for blocks from this one on.
    horizon: u64,
    /// A later transfer finds what this one has brought.
    kept: bool,
    /// See [`MirrorConfig::is_whole_known`].
    is_whole_known: bool,
    /// The hash of the whole tells which mirror is right.
    judged: bool,
    /// See [`MirrorConfig::unheard`].
    unheard: Vec<String>,
    /// See [`MirrorConfig::candidates`].
    candidates: Vec<String>,
    /// How it is verified without sources: a clause.
    verified_alone: String,
    /// Who says what the parts are: what stands behind the reason of a ban.
    according: String,
}

/// What a [`MirrorDriver`] is made of.
pub(super) struct MirrorConfig {
    pub(super) mirrors: Vec<Mirror>,
    /// The servers that the user named besides, and that do not answer now.
    pub(super) unheard: Vec<String>,
    pub(super) length: u64,
    pub(super) check: Check,
    /// Whether blocks are reserved with the subscriber: other sources have the content too.
    pub(super) subscriber_pool: bool,
    /// Whether a later transfer finds what this one has brought.
    pub(super) kept: bool,
    /// Whether a hash of the whole tells what is right, and it can be fetched again: none of the parts is
    /// known.
    pub(super) is_whole_known: bool,
    /// Whether it also tells which mirror is right: there are several.
    pub(super) judged: bool,
    /// The servers that say that hash themselves, who alone are tried alone; none: nobody but the user does.
    pub(super) candidates: Vec<String>,
    /// How it is verified without sources: a clause.
    pub(super) verified_alone: String,
    /// Who says what the parts are, as [`VouchedBy::according`](crate::VouchedBy::according) has it.
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

    /// The content of which mirrors bring parts, if only sources have the hashes of these.
    pub(super) const fn depends_on_sources(&self) -> Option<DownloadId> {
        match self.pool {
            PoolState::Subscriber(download) if !self.proven => Some(download),
            _ => None,
        }
    }

    /// Whether the hash of the whole tells which mirror is right.
    pub(super) const fn is_judged(&self) -> bool {
        self.judged
    }

    /// How it is verified without sources: a clause.
    pub(super) fn verified_alone(&self) -> &str {
        &self.verified_alone
    }

    /// Whether some mirror may still bring something.
    pub(super) fn can_supply(&self) -> bool {
        self.machine.has_usable_connection()
    }

    /// The content is wanted of mirrors alone, but for what is here.
    pub(super) fn want(&mut self, here: &Here<'_>) -> Result<()> {
        let numbers = |state: &MirrorState| (here.numbers_of)(state.mirror.url.as_str());
        self.numbers = self.mirrors.iter().map(numbers).collect();
        if let PoolState::Check(check) = &mut self.pool {
            let check = std::mem::replace(check, Check::Nothing);
            let mut plain = self.pool_of(check, here.has)?;
            self.take_up(&mut plain, here);
            self.compare_openings(&mut plain);
            self.pool = PoolState::Plain(plain);
        }
        Ok(())
    }

    /// A pool of what mirrors alone have, but for what is here.
    fn pool_of(&self, check: Check, have: impl Fn(u64) -> bool) -> Result<Box<VerifiedPool>> {
        let mut plain =
            VerifiedPool::new(self.length, check, have).map_err(|e| Error::usage(e.to_string()))?;
        plain.seed(self.seed);
        plain.set_horizon(self.horizon);
        let introduced = (0..).zip(&self.mirrors).filter(|(_, state)| state.mirror.introduced);
        plain.set_introduced(introduced.map(|(mirror, _)| mirror));
        match self.judged {
            true => plain.judged_as_a_whole(),
            false => self.expect(&mut plain),
        }
        Ok(Box::new(plain))
    }

    /// The subscriber wants the content: mirrors reserve blocks with it. A known leaf list spares asking
    /// sources for pages.
    pub(super) fn join_download(&mut self, download: DownloadId, subscriber: &mut Subscriber) {
        if let PoolState::Subscribing(check) = &mut self.pool {
            match std::mem::replace(check, Check::Nothing) {
                Check::Leaves(leaves) => self.proven = subscriber.set_leaves(download, leaves),
                check => self.check_alone = check,
            }
            self.pool = PoolState::Subscriber(download);
        }
        for (number, state) in self.mirrors.iter().enumerate() {
            if let Some(source) = state.source
                && !self.routes.iter().any(|route| usize::from(route.mirror) == number)
            {
                subscriber.mark_unavailable(source, download);
            }
        }
    }

    /// Nobody is asked for blocks from this one on. Where the subscriber lends, it is to be told too.
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
        let Self { machine, mirrors, pool, .. } = self;
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            machine.handle(now, Input::Banned { mirror }, pool);
        });
    }

    /// Why a mirror is banned.
    fn wrong_bytes(&self, block: u64) -> String {
        format!("wrong bytes in block {block}{}", self.according)
    }

    /// The mirror that a source of the subscriber is.
    pub(super) fn mirror_of(&self, source: SourceId) -> Option<MirrorId> {
        let found = self.mirrors.iter().position(|state| state.source == Some(source))?;
        MirrorId::try_from(found).ok()
    }

    /// Follows the machine until it waits; returns until when.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if mirrors differ and nothing tells which is right; what the last one failed with
    /// if none is left.
    pub(super) fn drain(
        &mut self,
        subscriber: &mut Subscriber,
        cx: &mut Context<'_, '_>,
        mut each: impl FnMut(PoolEvent, &mut Context<'_, '_>) -> Result<bool>,
    ) -> Result<Time> {
        let now = cx.now();
        loop {
            let Self { machine, mirrors, routes, pool, length, .. } = self;
            let mut silent: Vec<MirrorId> = Vec::new();
            let until = with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
                loop {
                    match machine.poll(now, pool) {
                        Output::Wait(until) => return until,
                        Output::Event(StateChanged { connection, state }) => {
                            let is_silent = matches!(state, State::Stalled | State::Failing);
                            silent.extend(routes.get(connection).filter(|_| is_silent).map(|one| one.mirror));
                        }
                        Output::Send(Command::Fetch { connection, fetch, first_byte, end_byte }) => {
                            let Some(end) = routes.get(connection) else { continue };
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
            if let PoolState::Plain(plain) = pool {
                silent.into_iter().for_each(|mirror| plain.doubt(mirror));
            }
            let again = self.drain_events(now, subscriber, cx, &mut each)?;
            if !again && !self.replace_candidate(cx)? {
                self.compare(now, cx.observer);
                if !self.machine.has_usable_connection() && self.is_alone() && self.is_wanting() {
                    return Err(self.given_up());
                }
                return Ok(until.min(self.comparison.deadline(now)));
            }
        }
    }

    /// Handles the events of the pool; returns whether the machine has to be polled again.
    fn drain_events(
        &mut self,
        now: Time,
        subscriber: &mut Subscriber,
        cx: &mut Context<'_, '_>,
        each: &mut impl FnMut(PoolEvent, &mut Context<'_, '_>) -> Result<bool>,
    ) -> Result<bool> {
        let PoolState::Plain(plain) = &mut self.pool else { return Ok(false) };
        let events: Vec<verified_pool::Event> = plain.events().collect();
        let only_compares = plain.only_compares();
        let is_unproven = only_compares || plain.alone().is_some();
        let mut again = false;
        for event in events {
            match event {
                verified_pool::Event::Verified { mirror, block, bytes, cv } => {
                    let mark = if is_unproven { self.mark_of(mirror) } else { 0 };
                    each(PoolEvent::Block { block, bytes, cv, mark }, cx)?;
                    if let Some(url) = self.newly_alone(mirror) {
                        each(PoolEvent::TriedAlone { url }, cx)?;
                    }
                }
                verified_pool::Event::EarlierDropped { block } => {
                    cx.observer.warning(&dropped(block));
                }
                verified_pool::Event::Revoked { blocks } => {
                    again = true;
                    each(PoolEvent::Revoked(blocks), cx)?;
                }
                verified_pool::Event::Shelved { blocks } => {
                    again = true;
                    each(PoolEvent::Shelved(blocks), cx)?;
                }
                verified_pool::Event::Restored { blocks } => {
                    again = true;
                    each(PoolEvent::Restored(blocks), cx)?;
                }
                verified_pool::Event::Complete if each(PoolEvent::Complete, cx)? => {
                    // Of what is stopped nobody has looked whether it is.
                    if let PoolState::Plain(plain) = &mut self.pool
                        && !cx.observer.is_stopped()
                    {
                        plain.whole_is_right();
                    }
                    again |= self.judged;
                }
                verified_pool::Event::Complete => again |= self.on_wrong(cx, each)?,
                verified_pool::Event::SetAside { mirror, block } => {
                    again = true;
                    cx.observer.notice(&format!(
                        "{}: other bytes than others have ({}): set aside until the hash of the whole tells \
                         who is right",
                        self.name(mirror),
                        place_of(block)
                    ));
                }
                verified_pool::Event::Banned { mirror, block } => {
                    again = true;
                    cx.observer.banned(self.name(mirror), &self.wrong_bytes(block));
                    self.ban(now, mirror, block, subscriber);
                    if only_compares && let Some(state) = self.mirrors.get(usize::from(mirror)) {
                        let url = &state.mirror.url;
                        let (origin, url) = (origin_text(url), url.as_str().to_owned());
                        each(PoolEvent::Liar { origin, url }, cx)?;
                    }
                }
                verified_pool::Event::Conflict { mirrors, block } if self.judged => {
                    cx.observer.notice(&format!(
                        "{} have different bytes ({}): each is tried alone, and the hash of the whole tells \
                         who is right",
                        self.names(&mirrors),
                        place_of(block)
                    ));
                    again = true;
                    if !self.try_next(now, cx.observer) {
                        let stays = self.keep_earlier(&mirrors, |event| each(event, cx))?;
                        return Err(self.conflict(
                            &mirrors,
                            block,
                            "none of them could be tried alone",
                            &stays,
                        ));
                    }
                }
                verified_pool::Event::Conflict { mirrors, block } => {
                    let stays = self.keep_earlier(&mirrors, |event| each(event, cx))?;
                    return Err(self.conflict(&mirrors, block, "there is no hash to tell", &stays));
                }
            }
        }
        if let PoolState::Plain(plain) = &mut self.pool {
            plain
                .compared()
                .into_iter()
                .try_for_each(|blocks| each(PoolEvent::Compared(blocks), cx).map(drop))?;
        }
        Ok(again)
    }

    /// Whether all of it is here and only comparisons with other mirrors are waited for.
    pub(super) const fn is_comparing(&self) -> bool {
        self.comparison.waiting.is_some()
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
