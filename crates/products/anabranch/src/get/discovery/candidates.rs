//! The candidates for the wanted file: the variants that the answers of servers tell apart.
//!
//! If a hash of the user's or a signature tells which variant is right, the variants are tried in turn.
//! Otherwise the mirrors vote, with one vote for each origin that the user named: first on the length, and
//! then on the first bytes of the file. If no majority results, the transfer ends with an error that names
//! the mirrors that differ.
//!
//! A server that does not say how long its file is may have any of the variants, or another file. It is a
//! variant of its own, and its file is fetched in one answer.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_mirror::metalink::Metalink;
use anabranch_mirror::range_scheduler::MirrorId;
use anabranch_mirror::url::Url;
use anabranch_mirror::variants::{Ballot, Evidence, Variant, Variants};
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::ContentId;

use super::told::Told;
use super::{Discovery, Expected, Round, ask_all};
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::filenames::first_few;
use crate::get::discovered_file::DiscoveredFile;
use crate::get::event_loop::EventLoop;
use crate::get::locators::Locators;
use crate::get::one_answer::{self, OneAnswer};
use crate::get::origin::host;
use crate::get::request::Request;
use crate::openpgp::Signed;
use crate::target::{DestPath, RootCheck, what_is_there};
use crate::{Error, Result, VouchedBy};

/// The reason for banning a mirror that lost the vote on the first bytes before anything was fetched.
const OUTVOTED: &str = "it begins with other bytes than most mirrors";

/// What discovery found.
pub(in crate::get) enum Discovered<'a> {
    /// One file, or several variants of it.
    File(Box<Candidates<'a>>),
    /// A Metalink of several files, its URL, and the host that offers it: `None` if the user named the
    /// Metalink itself and not only a directory.
    Directory(Metalink, Url, Option<String>),
}

/// Asks all servers for the file. If some server has answered, sets `absent` to the servers of URLs that the
/// user, or a Metalink of the user's, named and that cannot be reached or cannot answer now.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if what the user says contradicts itself,
/// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound),
/// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) or
/// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if no server has the file,
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if servers have different files and nothing tells which
/// is meant, [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops.
pub(in crate::get) fn discover<'a>(
    asked: Locators,
    said: Expected,
    round: Round,
    absent: &mut Vec<String>,
    request: &'a Request,
    events: &mut EventLoop<'_, '_>,
) -> Result<Discovered<'a>> {
    let mut discovery = ask_all(asked, said, round, request, events)?;
    if discovery.has_answer() {
        // If no server has answered, all were asked for as long as an answer could be expected, so `absent`
        // stays empty and there is no second round.
        discovery.says.absent.clone_into(absent);
    }
    if let Some((metalink, url, by)) = discovery.documents.several {
        return Ok(Discovered::Directory(metalink, url, by));
    }
    discovery.leave_out_listings();
    let resolved = discovery.resolve();
    if resolved.is_ok() {
        discovery.says.notices.append(&mut discovery.says.unsaid);
    }
    discovery.tell_notices(events.observer);
    let (known, signed, variants) = resolved?;
    discovery.says.warnings.drain(..).for_each(|warning| events.observer.warning(&warning));
    let has_round = round == Round::First && !absent.is_empty();
    let candidates = Candidates { discovery, known, signed, variants, files: BTreeMap::new(), has_round };
    candidates.outvoted().for_each(|(name, why)| events.observer.banned(&name, &why));
    Ok(Discovered::File(Box::new(candidates)))
}

/// The variants of the wanted file that are still to be tried: see the [module](self).
pub(in crate::get) struct Candidates<'a> {
    discovery: Discovery<'a>,
    /// What the user says of the content.
    known: Told,
    signed: Option<Signed>,
    pub(in crate::get) variants: Variants,
    /// What is known of the file of each length, with all mirrors that have a file of that length.
    files: BTreeMap<u64, DiscoveredFile>,
    /// Whether a second round can follow, which asks servers that could not be asked in this one.
    has_round: bool,
}

/// A variant, prepared to be tried.
pub(in crate::get) struct Attempt {
    pub(in crate::get) variant: Variant,
    pub(in crate::get) found: DiscoveredFile,
    /// The URLs of the mirrors that have another variant of the same length.
    pub(in crate::get) others: Vec<String>,
    /// The whole file, if its server gave no length, so that it had to be fetched in one answer.
    pub(in crate::get) came: Option<OneAnswer>,
}

impl Candidates<'_> {
    /// Moves variants to the front that an earlier run has begun or finished at the destination.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the directory cannot be looked at.
    pub(in crate::get) fn sort_by_what_is_there(&mut self, place: &DestPath) -> Result<()> {
        let lengths: BTreeSet<u64> = self.variants.iter().filter_map(|variant| variant.length).collect();
        let mut there = BTreeMap::new();
        for length in lengths {
            there.insert(length, what_is_there(place, length)?);
        }
        let is_there = |variant: &Variant| variant.length.and_then(|length| there.get(&length)).copied();
        self.variants.sort_by_key(|variant| (variant.length.is_none(), is_there(variant)));
        Ok(())
    }

    /// Replaces the user by `by` as the voucher for what is known of the content. A transfer of a directory
    /// uses this, because each file of the directory's Metalink was requested as if the user had described
    /// it.
    pub(in crate::get) fn are_vouched_for_by(&mut self, by: &VouchedBy) {
        if self.known.by == Some(VouchedBy::User) {
            self.known.by = Some(by.clone());
        }
    }

    /// Whether another variant may be tried, now or in a second round. Without a hash a second round does not
    /// count, because it might not be able to resume what arrived in this one.
    pub(in crate::get) fn has_others(&self) -> bool {
        !self.variants.is_empty() || self.has_round && self.discovery.tries_variants
    }

    /// Describes the next variant in words; returns `None` if no variant is left.
    pub(in crate::get) fn next_text(&self) -> Option<String> {
        let next = self.variants.iter().next()?;
        let hosts: Vec<String> = next.mirrors.iter().map(|place| host(self.url(*place))).collect();
        let hosts = hosts.join(", ");
        Some(match next.length {
            _ if next.is_alone => format!("{hosts} alone"),
            Some(length) => format!("the file of {length} bytes from {hosts}"),
            None => format!("the file of {hosts}"),
        })
    }

    /// Returns the names of the mirrors that lost the vote, each with the reason for its ban.
    pub(in crate::get) fn outvoted(&self) -> impl Iterator<Item = (String, String)> {
        let name = |number: &usize| host(&self.discovery.mirrors[*number].url);
        self.discovery.says.outvoted.iter().map(move |number| (name(number), OUTVOTED.to_owned()))
    }

    /// Returns the URL of a mirror.
    pub(in crate::get) fn url(&self, mirror: MirrorId) -> &Url {
        &self.discovery.mirrors[usize::from(mirror)].url
    }

    /// Takes the next variant and prepares its attempt; returns `None` if no variant is left.
    pub(in crate::get) fn next(
        &mut self,
        request: &Request,
        events: &mut EventLoop<'_, '_>,
    ) -> Option<Result<Attempt>> {
        let variant = self.variants.take()?;
        let Some(length) = variant.length else { return Some(self.measure(variant, request, events)) };
        let found = match self.file_of(length, events.observer) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let (mirrors, others) = found.mirrors.into_iter().partition(|m| variant.mirrors.contains(&m.place));
        let others: Vec<_> = others;
        let others = others.into_iter().map(|mirror| mirror.url.as_str().to_owned()).collect();
        let found = DiscoveredFile { mirrors, ..found };
        Some(Ok(Attempt { variant, found, others, came: None }))
    }

    /// Returns what is known of the file of this length, with all its mirrors.
    fn file_of(&mut self, length: u64, observer: &mut Observer<'_>) -> Result<DiscoveredFile> {
        if let Some(known) = self.files.get(&length) {
            return Ok(known.clone());
        }
        let found = self.discovery.found_of(length, self.known.clone());
        self.discovery.tell_notices(observer);
        let found = DiscoveredFile { signed: self.signed.clone(), ..found? };
        self.files.insert(length, found.clone());
        Ok(found)
    }

    /// Fetches the file of a server that does not say its length, in one answer, to learn the length. If a
    /// file is at the destination and must not be replaced, takes the length of that file instead: either it
    /// is the wanted file, or nothing is fetched.
    fn measure(
        &mut self,
        variant: Variant,
        request: &Request,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Attempt> {
        let place = usize::from(variant.mirrors[0]);
        let url = self.discovery.mirrors[place].url.clone();
        let there = self.discovery.length_there(request)?;
        let length = match there.filter(|_| !request.force) {
            Some(length) => length,
            None => {
                let via = &self.discovery.asking.vias[self.discovery.asking.via];
                let is_named = self.discovery.is_named(&url);
                let patience = self.has_others().then(|| variant.patience());
                let take = |events: &mut EventLoop<'_, '_>| {
                    one_answer::take(&url, is_named, via, &request.output, events)
                };
                let (came, gave_way) = events.with_patience(patience, take);
                let breaks_off = came.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unreachable);
                let may_come = gave_way || patience.is_some() && breaks_off;
                if may_come && !variant.is_last_turn(events.whole_timeout()) {
                    self.variants.put_back(variant.clone());
                }
                let came = came?;
                return self.measured(variant.of_length(came.length), Some(came), events);
            }
        };
        self.measured(variant.of_length(length), None, events)
    }

    fn measured(
        &mut self,
        variant: Variant,
        came: Option<OneAnswer>,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Attempt> {
        let length = variant.length.unwrap_or_default();
        if let Some(head) = &mut self.discovery.mirrors[usize::from(variant.mirrors[0])].head {
            (head.length, head.ranges) = (Some(length), false);
        }
        self.discovery.is_here = true;
        self.files.remove(&length);
        let mut found = self.file_of(length, events.observer)?;
        if came.is_some() {
            // The blocks of that answer were not verified on arrival, so only the whole file can be.
            if matches!(found.check, Check::Leaves(_)) {
                (found.check, found.proof.root) = (Check::Nothing, RootCheck::Whole);
            }
        }
        found.mirrors.retain(|mirror| variant.mirrors.contains(&mirror.place));
        Ok(Attempt { variant, found, others: Vec::new(), came })
    }
}

impl Discovery<'_> {
    pub(super) fn tell_notices(&mut self, observer: &mut Observer<'_>) {
        self.says.notices.drain(..).for_each(|notice| observer.notice(&notice));
    }

    /// Returns the length of the file that is already at the destination.
    fn length_there(&self, request: &Request) -> Result<Option<u64>> {
        let names = self.offered_names(self.documents.metalink.as_ref(), &[]);
        let needs_name = request.output.needs_name(false);
        if needs_name && names.chosen().is_none() {
            // The file will be named after its content, which is not known yet.
            return Ok(None);
        }
        let path = request.output.file_path(names.chosen(), &ContentId { root: [0; 32], length: 0 })?;
        Ok(std::fs::symlink_metadata(path).ok().map(|there| there.len()))
    }

    /// Returns the variants of the file. `length` is the length that the user gives. `has_parts` tells
    /// whether hashes of parts are known, so that each block can be verified on its own.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if nothing tells which variant is meant.
    pub(super) fn variants(&mut self, length: Option<u64>, has_parts: bool) -> Result<Variants> {
        let voters = self.first_of_use(|number| self.mirrors[number].head.is_some());
        // A length from a server's documents counts only if neither the user nor any response gives a length.
        let is_unknown = !self.tries_variants && self.heads().all(|head| head.length.is_none());
        let told = if is_unknown { length.or_else(|| self.told_length()) } else { length };
        let evidence = |number: usize| {
            let head = self.mirrors[number].head.as_ref()?;
            let opening = self.mirrors[number].opening.filter(|_| !has_parts);
            Some(Evidence {
                length: head.length.or(told),
                opening,
                has_vote: voters.contains(&number),
                ranges: head.ranges,
            })
        };
        let all = |this: &Self| (0..this.mirrors.len()).filter_map(|n| Some((n as MirrorId, evidence(n)?)));
        let mut variants = Variants::new(all(self).collect::<Vec<_>>());
        if let Some(length) = length {
            variants.retain(|variant| variant.length == Some(length));
        }
        if !self.tries_variants {
            self.vote(&mut variants, has_parts)?;
        }
        if let Some(length) = length.or_else(|| variants.iter().next()?.length) {
            self.tell_other_lengths(length);
        }
        Ok(variants)
    }

    /// Keeps only the variants that most origins have, because nothing else tells which variant is meant. The
    /// voters decide on the length first, and then on the first bytes, unless hashes of the parts are known.
    fn vote(&mut self, variants: &mut Variants, has_parts: bool) -> Result<()> {
        // A variant of unknown length is kept only if no server gives a length.
        let is_known = |variant: &Variant| variant.length.is_some();
        if variants.iter().any(is_known) {
            variants.retain(is_known);
        }
        let its = |variant: &Variant, number: usize| variant.mirrors.contains(&(number as MirrorId));
        let variant = |number| variants.iter().find(|variant| its(variant, number));
        let voters = self.first_of_use(|number| variant(number).is_some());
        let votes: Vec<(usize, Option<u64>)> =
            voters.into_iter().filter_map(|number| Some((number, variant(number)?.length))).collect();
        match Ballot::of(votes.iter().map(|(_, length)| *length), 0) {
            Ballot::Majority(length) => variants.retain(|variant| variant.length == length),
            _ if votes.is_empty() => return Ok(()),
            _ => {
                let each = votes.iter().filter_map(|(number, length)| {
                    Some(format!("{} has {} bytes", self.mirrors[*number].url, (*length)?))
                });
                return Err(Error::corrupt(format!(
                    "the URLs are of files of different lengths, and nothing tells which is meant: {}: name \
                     one of them alone, or a Metalink, or give a `checksum`",
                    first_few(each, ", ")
                )));
            }
        }
        if has_parts {
            return Ok(());
        }
        let has_it = |number: &usize| variants.iter().any(|variant| its(variant, *number));
        let voters: Vec<usize> = votes.into_iter().map(|(number, _)| number).filter(has_it).collect();
        let opening = |place: &MirrorId| self.mirrors[usize::from(*place)].opening;
        let said: Vec<_> = voters.iter().filter_map(|number| self.mirrors[*number].opening).collect();
        let are_same = said.windows(2).all(|two| two[0] == two[1]);
        let right = match Ballot::of(said.iter().copied(), voters.len() - said.len()) {
            Ballot::Majority(right) => Some(right),
            _ if are_same => said.first().copied(),
            _ => {
                let names: Vec<String> = voters.iter().map(|number| self.label(*number)).collect();
                let why = match self.is_hashless() {
                    true => "there is no hash to tell which are right",
                    false => "what is read in order cannot be fetched again",
                };
                return Err(Error::corrupt(format!(
                    "{} have different bytes (the first 13 KiB), and {why}: name one of them, or give \
                     `checksum` or a Metalink",
                    names.join(" and ")
                )));
            }
        };
        // A variant that no voter has is dropped.
        variants.retain(|variant| variant.mirrors.iter().any(|place| voters.contains(&usize::from(*place))));
        let Some(right) = right else { return Ok(()) };
        let is_other = |variant: &Variant| variant.mirrors.iter().filter_map(opening).any(|its| its != right);
        let others = variants.iter().filter(|variant| is_other(variant));
        let others = others.flat_map(|variant| &variant.mirrors).map(|place| usize::from(*place)).collect();
        variants.retain(|variant| !is_other(variant));
        self.says.outvoted = others;
        Ok(())
    }
}
