//! Decides which uplinks there are, which carry and which are backups: docs/uplinks.md, "What it decides".
//!
//! [`Decider`] is a machine: pictures of the network ([`Survey`]) and readings of radios in, [`Wanted`] out.
//! It is level triggered: what is wanted follows from the last picture, the verdicts about radios, and when
//! links were lost, however the events came. Numbers of endpoints are the exception: see `numbers`.
//!
//! Law of a link: lost at once; back at once, or after one of [`SETTLES`] if it was lost in the last
//! [`LOSSES_COUNT_FOR`]. A link that is lost again before that time is over is not taken back meanwhile.

mod link;
mod numbers;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anabranch_algo::wifi::Reading;
use anabranch_algo::{Machine, Output, Time};
use anabranch_kernel::uplinks::{Survey, UPLINKS_MAX};

pub use link::{LOSSES_COUNT_FOR, SETTLES};
pub use report::{Report, State};

use crate::policy::Policy;
use link::Link;
use numbers::Numbers;

/// An input of the [`Decider`].
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The network is like this now.
    Network(&'a Survey),
    /// The radio of this interface says this.
    Radio(&'a str, Reading),
}

/// What the kernel is to be told. Interfaces are given by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The uplinks, also lost ones: the position of each gives its routing table.
    pub interfaces: Vec<String>,
    /// Those that carry only while no other can.
    pub backup: Vec<String>,
    /// Those that have no endpoint for now: they are lost, or came back a moment ago.
    pub without: Vec<String>,
    /// Addresses of lost uplinks whose endpoints stay, because no other uplink works.
    pub kept: Vec<IpAddr>,
    /// The numbers of the endpoints.
    pub ids: BTreeMap<IpAddr, u8>,
    /// How often the uplink of each address has come back. An endpoint that stayed meanwhile is made anew.
    pub returns: BTreeMap<IpAddr, u64>,
}

/// Decides about uplinks: see the first lines of the file.
#[derive(Debug)]
pub struct Decider {
    policy: Policy,
    links: BTreeMap<String, Link>,
    /// The uplinks by routing table.
    slots: Vec<String>,
    numbers: Numbers,
    /// The addresses of the uplinks that worked last, for the time in which none works.
    last: BTreeSet<IpAddr>,
    wanted: Wanted,
    told: Option<Wanted>,
}

impl Machine for Decider {
    type Input<'a> = Input<'a>;
    type Transmit = ();
    type Event = Wanted;

    fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Network(survey) => self.see(now, survey),
            Input::Radio(name, reading) => {
                if let Some(link) = self.links.get_mut(name) {
                    link.read(now, reading);
                }
            }
        }
        self.decide(now);
    }

    fn poll(&mut self, now: Time) -> Output<(), Wanted> {
        if self.next_settled().is_some_and(|at| at <= now) {
            self.decide(now);
        }
        if self.told.as_ref() != Some(&self.wanted) {
            self.told = Some(self.wanted.clone());
            return Output::Event(self.wanted.clone());
        }
        Output::Wait(self.next_settled().unwrap_or(Time::NEVER))
    }
}

impl Decider {
    /// Creates a decider that knows no interface.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            links: BTreeMap::new(),
            slots: Vec::new(),
            numbers: Numbers::default(),
            last: BTreeSet::new(),
            wanted: Wanted::default(),
            told: None,
        }
    }

    /// Takes over the addresses of endpoints that an earlier daemon has left. They stay until an uplink
    /// works.
    pub fn take_over(&mut self, left: impl IntoIterator<Item = IpAddr>) {
        self.last.extend(left);
    }

    /// Returns what was last wanted.
    #[must_use]
    pub const fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Returns the names of the uplinks that work, also those that settle.
    pub fn present(&self) -> impl Iterator<Item = (&str, u32)> {
        self.links.iter().filter_map(|(name, link)| Some((name.as_str(), link.index()?)))
    }

    fn next_settled(&self) -> Option<Time> {
        self.links.values().filter_map(Link::settles_at).min()
    }

    fn see(&mut self, now: Time, survey: &Survey) {
        let endpoints = survey.endpoints.iter().map(|endpoint| (endpoint.ip, endpoint.id));
        self.numbers.see(endpoints, self.links.is_empty());
        // What is named is reported also while it is not there.
        for named in &self.policy.via {
            self.links.entry(named.name.clone()).or_default();
        }
        let is_there = |name: &String| survey.links.iter().any(|link| link.name == *name);
        for (name, link) in &mut self.links {
            if !is_there(name) {
                link.lose(now, "it does not exist now".to_owned());
            }
        }
        // Interfaces that come and go under ever new names are forgotten.
        let is_known = |name: &String| {
            self.slots.contains(name) || self.policy.via.iter().any(|named| named.name == *name)
        };
        self.links.retain(|name, _| is_there(name) || is_known(name));
        for seen in &survey.links {
            let link = self.links.entry(seen.name.clone()).or_default();
            match self.policy.of(&seen.name, seen.is_line) {
                None => link.ignore(now, reason_to_ignore(&self.policy, seen.is_line)),
                Some(how) => link.see(now, how, seen.index, &seen.addresses),
            }
        }
        self.give_slots();
    }

    /// Gives each uplink that works a routing table, which it keeps. A new one takes that of an uplink that
    /// is lost if all are given.
    fn give_slots(&mut self) {
        let works = |links: &BTreeMap<String, Link>, name: &String| {
            links.get(name).is_some_and(|link| link.index().is_some())
        };
        let news: Vec<String> = self
            .links
            .keys()
            .filter(|name| works(&self.links, name) && !self.slots.contains(name))
            .cloned()
            .collect();
        for name in news {
            if self.slots.len() < UPLINKS_MAX {
                self.slots.push(name);
            } else if let Some(slot) = self.slots.iter().position(|of| !works(&self.links, of)) {
                self.slots[slot] = name;
            }
        }
        for (name, link) in &mut self.links {
            link.set_slot(self.slots.iter().position(|of| of == name));
        }
    }

    fn decide(&mut self, now: Time) {
        let is_ready = |(name, link): (&String, &mut Link)| link.is_ready(now).then(|| name.clone());
        let ready: Vec<String> = self.links.iter_mut().filter_map(is_ready).collect();
        let without = self.slots.iter().filter(|name| !ready.contains(name)).cloned().collect();
        let mut wanted = Wanted { interfaces: self.slots.clone(), without, ..Wanted::default() };
        if ready.is_empty() {
            wanted.kept = self.last.iter().copied().collect();
        } else {
            self.number(&ready, &mut wanted);
            self.last = wanted.ids.keys().copied().collect();
        }
        self.rank(&ready, &mut wanted);
        self.wanted = wanted;
    }

    /// Gives every address of these links a number.
    fn number(&mut self, ready: &[String], wanted: &mut Wanted) {
        for name in ready {
            let Some(link) = self.links.get_mut(name) else { continue };
            link.number(&mut self.numbers);
            wanted.ids.extend(link.numbered());
            wanted.returns.extend(link.numbered().map(|(ip, _)| (ip, link.returns())));
        }
    }

    /// Makes backups of all links but the cheapest that do not fade.
    fn rank(&mut self, ready: &[String], wanted: &mut Wanted) {
        let rank = |name: &String| self.links.get(name).map(Link::rank);
        let best = ready.iter().filter_map(|name| Some((rank(name)?, name.clone()))).min();
        let Some((best, best_name)) = best else { return };
        for name in ready {
            let Some(link) = self.links.get_mut(name) else { continue };
            let is_backup = link.rank() > best;
            link.set_backup(is_backup.then(|| best_name.clone()));
            if is_backup {
                wanted.backup.push(name.clone());
            }
        }
    }

    /// Reports on every interface, ordered by name.
    #[must_use]
    pub fn report(&self) -> Vec<Report> {
        let kept = |link: &Link| self.wanted.kept.iter().any(|ip| link.had(*ip));
        self.links.iter().map(|(name, link)| link.report(name, kept(link))).collect()
    }
}

fn reason_to_ignore(policy: &Policy, is_line: bool) -> String {
    match (is_line, policy.via.is_empty()) {
        (true, _) | (false, false) => "it is not among the links that are named".to_owned(),
        (false, true) => "it is no line of this host: its packets leave by another interface".to_owned(),
    }
}
