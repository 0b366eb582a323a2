//! Drives the HTTP part of a transfer: the mirrors, the routes to them, and the pool of missing blocks that
//! they share.
//!
//! The driver joins three independent parts: the scheduler (here called the machine) that decides which range
//! is requested from which mirror ([`anabranch_mirror::range_scheduler`]), the client that sends the requests
//! ([`anabranch_http::client`]), and the pool of missing blocks. The pool is a
//! [`VerifiedPool`](verified_pool::VerifiedPool) if only mirrors have the content. If sources that speak mmTP
//! have it too, the pool is the subscriber, with which mirrors reserve blocks.

mod answers;
mod comparison;
mod connections;
mod part;
mod progress;
mod without_sources;

use std::ops::Range;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Output, Time};
use anabranch_http::client::{FetchError, FetchRequest};
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

/// Says how to treat a mirror whose `ETag` or date has changed since its first answer. Either its file has
/// changed, or the change has no meaning: some servers send another `ETag` with each answer, and some consist
/// of several machines with an `ETag` each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangedVersion {
    /// The mirror is used without a validator, because the hash of the whole file tells which bytes are
    /// right.
    Ignored,
    /// The whole file is taken from one answer of the mirror, of which nothing has arrived yet.
    OneAnswer,
    /// The mirror is given up.
    Out,
}

/// Says what an attempt finds out about the variant that it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All blocks were there, and the hash of the whole file did not match.
    Wrong,
    /// The mirrors of the variant have different bytes.
    Differ,
}

/// Holds the findings of an attempt about its mirrors, for the next attempt.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) found: Option<Found>,
    /// Whether the attempt has only one mirror, and every block that counts came from the version of the file
    /// that this mirror has now.
    pub(super) is_pure: bool,
    /// The blocks in which mirrors differ; the numbers of mirrors are those of this attempt.
    pub(super) differences: Differences,
    /// The mirrors whose version has changed since they were first asked.
    pub(super) changed: Vec<MirrorId>,
    /// The number of bytes that each mirror has delivered.
    pub(super) brought: Vec<u64>,
    /// The mirror that an earlier transfer tried alone.
    pub(super) tried_before: Option<MirrorId>,
}

/// Holds the state of a mirror.
struct MirrorState {
    status: ServerStatus,
    mirror: Mirror,
    /// The number under which the subscriber counts this mirror as a source; `None` unless mmTP sources have
    /// the content too, so that mirrors reserve blocks with the subscriber.
    source: Option<SourceId>,
    /// Whether the user has been told how this mirror without ranges is used.
    reserve: bool,
    /// The number of range requests that the mirror has begun to answer.
    answers: u64,
    /// The treatment of a change of the mirror's `ETag` or date since its first answer; `None` if neither has
    /// changed.
    changed: Option<ChangedVersion>,
}

/// Reports an event of the mirrors' pool that the caller handles.
pub(super) enum PoolEvent {
    /// A block that is verified as far as it can be. `mark` is the number of the mirror that delivered it:
    /// see [`Slot::mark`](crate::target::journal::Slot::mark).
    Block { block: u64, bytes: Vec<u8>, cv: anabranch_mmtp::tree::ChainingValue, mark: u8 },
    /// Blocks that were reported as verified and turned out to be wrong.
    Revoked(Range<u64>),
    /// The mirror of this URL is tried alone, and has delivered its first block.
    TriedAlone { url: String },
    /// The mirror of this origin sent wrong bytes, as comparisons with other mirrors show. No hash of the
    /// content is known.
    Liar { origin: String },
    /// All blocks have arrived.
    Complete,
}

/// Drives HTTP in a transfer.
pub(super) struct MirrorDriver {
    config: MirrorConfig,
    machine: RangeScheduler,
    mirrors: Vec<MirrorState>,
    network: Routing,
    pool: PoolState,
    /// The secret that determines which blocks are compared between mirrors.
    seed: [u8; 32],
    /// The number of each mirror's version in the journal, with which blocks are marked.
    numbers: Vec<Option<u8>>,
    /// The time since which the driver has been waiting for samples of other mirrors.
    waiting: Option<Time>,
    /// Whether the user has been warned that some samples are no longer waited for.
    has_warned: bool,
    /// The mirrors that an earlier transfer ruled out, each with the reason. They stay here until they are
    /// given up.
    unwanted: Vec<(MirrorId, FetchError)>,
    /// Whether blocks are reserved with the subscriber and a leaf list gave it the hashes of all blocks, so
    /// that sources are not needed to verify blocks.
    proven: bool,
    /// The first block that mirrors are not asked for; they are asked for no later block either.
    horizon: u64,
    found: Option<Found>,
    /// See [`Findings::is_pure`], without its condition on the number of mirrors.
    is_pure: bool,
    tried_before: Option<MirrorId>,
}

/// Holds the routes to mirrors, and the data from which new routes are made.
struct Routing {
    routes: Vec<Route>,
    /// The local ends that the user named.
    named: Vec<Egress>,
    algorithm: Algorithm,
    groups: GroupPolicy,
    first_group: usize,
    /// Whether the host's links have changed and the name of some mirror is still being looked up.
    awaits_names: bool,
}

/// The configuration of a [`MirrorDriver`].
#[derive(Debug)]
pub(super) struct MirrorConfig {
    pub(super) mirrors: Vec<Mirror>,
    pub(super) length: u64,
    /// The check of the parts of the file. If blocks are reserved with the subscriber, this check applies
    /// only once no source answers any more.
    pub(super) check: Check,
    /// Whether blocks are reserved with the subscriber, because sources have the content too.
    pub(super) subscriber_pool: bool,
    /// Whether the delivered blocks are kept for a later transfer.
    pub(super) kept: bool,
    /// Whether a hash of the whole file or a signature tells which bytes are right, no hash of a part is
    /// known, and another variant can be tried.
    pub(super) judged: bool,
    /// Whether the variant's only mirror is tried alone, so that only blocks that it delivered count.
    pub(super) is_alone: bool,
    /// Whether there are other variants to try, or servers that could not be asked.
    pub(super) has_others: bool,
    /// The URLs of other variants. Blocks that they delivered earlier do not count.
    pub(super) others: Vec<String>,
    /// A clause that says how the content is verified without sources.
    pub(super) verified_alone: String,
    /// The voucher for the hashes of the parts, in the words of
    /// [`VouchedBy::according`](crate::VouchedBy::according).
    pub(super) according: String,
}

impl MirrorDriver {
    /// Registers the mirrors as sources of the subscriber, so that they can reserve blocks with it; returns
    /// the names of the registered mirrors.
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

    /// Returns whether the mirrors fetch the content without the subscriber.
    pub(super) const fn is_alone(&self) -> bool {
        matches!(self.pool, PoolState::Check(_) | PoolState::Plain(_))
    }

    /// Returns the download whose blocks mirrors deliver, if only sources have the hashes of its blocks.
    pub(super) const fn depends_on_sources(&self) -> Option<DownloadId> {
        match self.pool {
            PoolState::Subscriber(download) if !self.proven => Some(download),
            _ => None,
        }
    }

    /// Returns a clause that says how the content is verified without sources.
    pub(super) fn verified_alone(&self) -> &str {
        &self.config.verified_alone
    }

    /// Returns whether some mirror may still deliver blocks.
    pub(super) fn can_supply(&self) -> bool {
        self.machine.has_usable_connection()
    }

    /// Lets the mirrors reserve blocks with the subscriber, which has begun this download. A known leaf list
    /// is handed to the subscriber, so that it need not ask sources for the hashes.
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

    /// Limits the requests to the blocks before `end_block`. If blocks are reserved with the subscriber, the
    /// caller has to tell the subscriber too.
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

    /// Bans a mirror that sent wrong bytes. The subscriber or the pool has found this out and has reported
    /// it.
    pub(super) fn ban(&mut self, now: Time, mirror: MirrorId, block: u64, subscriber: &mut Subscriber) {
        let reason = self.wrong_bytes(block);
        let Some(state) = self.mirrors.get_mut(usize::from(mirror)) else { return };
        state.status.ban(reason);
        self.no_more(now, mirror, subscriber);
    }

    /// Returns the reason for banning a mirror that sent wrong bytes in this block.
    fn wrong_bytes(&self, block: u64) -> String {
        format!("wrong bytes in block {block}{}", self.config.according)
    }

    /// Returns the mirror that is registered as this source of the subscriber.
    pub(super) fn mirror_of(&self, source: SourceId) -> Option<MirrorId> {
        let found = self.mirrors.iter().position(|state| state.source == Some(source))?;
        MirrorId::try_from(found).ok()
    }

    /// Carries out the commands of the scheduler and handles the events of the pool until both wait; returns
    /// the time until which they wait.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if mirrors differ and no hash tells which is right;
    /// the error of the mirrors if no mirror is left.
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
                            let kind = mirror.range(first_byte, end_byte, length);
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

    /// Handles the events of the pool; returns whether the scheduler has to be polled again.
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

    /// Stops the scheduler from using a mirror.
    fn no_more(&mut self, now: Time, mirror: MirrorId, subscriber: &mut Subscriber) {
        let Self { machine, mirrors, pool, .. } = self;
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            machine.handle(now, Input::Banned { mirror }, pool);
        });
    }

    /// Returns the URL of the mirror that is tried alone, once, when it has delivered its first block.
    /// Returns `None` for a mirror without ranges, because its transfer begins anew after each interruption.
    fn newly_alone(&mut self) -> Option<String> {
        let state = self.mirrors.first().filter(|_| self.config.is_alone)?;
        let is_new = self.tried_before.is_none() && state.mirror.ranges;
        let url = state.mirror.url.as_str().to_owned();
        self.tried_before = Some(0).filter(|_| is_new).or(self.tried_before);
        is_new.then_some(url)
    }

    /// Returns the findings of this attempt.
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

    /// Records that all blocks are there and the whole file is wrong. Returns the URL of the mirror that is
    /// thereby proved to have another file, if there is one, and whether this result is final.
    pub(super) fn on_wrong(&mut self) -> (Option<String>, bool) {
        self.found = Some(Found::Wrong);
        let is_one = self.mirrors.len() == 1 && self.is_pure;
        let its = self.mirrors.first().filter(|_| is_one && !self.has_changed(0));
        (its.map(|state| state.mirror.url.as_str().to_owned()), is_one && !self.config.has_others)
    }

    /// Returns whether the version of a mirror differs from its version when it was first asked.
    fn has_changed(&self, mirror: MirrorId) -> bool {
        self.mirrors.get(usize::from(mirror)).is_none_or(|state| state.changed.is_some())
    }

    /// Returns whether a hash of the whole file tells whether the mirrors have the right variant.
    pub(super) const fn is_judged(&self) -> bool {
        self.config.judged
    }

    /// Returns the error for mirrors that differ when no vote decides.
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

    /// Returns whether mirrors are only compared with each other, because no hash of the content is known.
    pub(super) fn is_hashless(&self) -> bool {
        let only_compares = matches!(&self.pool, PoolState::Plain(plain) if plain.only_compares());
        only_compares && !self.config.judged
    }

    /// Returns the error for the case that no mirror is left.
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
            // of the bytes that arrived.
            true if have_changed => {
                "what arrived is of the version that it had, and no other URL goes on with that without a \
                 hash: remove the part to begin anew"
            }
            true => "what arrived is kept: name another beside",
        };
        code.error(format!("{why}; {advice}"))
    }

    /// Returns the mirrors that have delivered bytes, including mirrors that were given up.
    fn brought(&self) -> impl Iterator<Item = &MirrorState> {
        let reports = || self.machine.connections().zip(&self.network.routes);
        let brought = move |number: usize| {
            reports().any(|(report, route)| usize::from(route.mirror) == number && report.counters.bytes > 0)
        };
        self.mirrors.iter().enumerate().filter(move |(number, _)| brought(*number)).map(|(_, state)| state)
    }

    /// Returns whether the driver is waiting for samples of other mirrors.
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

/// Returns the number of each mirror as a source of the subscriber.
fn sources(mirrors: &[MirrorState]) -> Vec<Option<SourceId>> {
    mirrors.iter().map(|state| state.source).collect()
}

/// Describes the position of a block in the file, for people.
fn place_of(block: u64) -> String {
    format!("16 KiB from byte {} on", block * BLOCK_BYTES as u64)
}
