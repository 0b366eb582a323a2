//! Plans the changes from the present configuration, the desired one and the journal. Only applying a plan
//! makes system calls.

use std::collections::BTreeMap;
use std::path::Path;

use anabranch_net::netlink::{Endpoint, Limits, TcpSocket};

use super::Result;
use super::change::Change;
use super::current::CurrentConfig;
use super::desired::DesiredConfig;
use super::endpoints::{Endpoints, endpoints};
use super::journal::{Journal, JournalFile, SavedLimits, pair, with_ip};

/// The changes to make, and the contents of the journal during and after them.
#[derive(Clone, Debug)]
pub struct Plan {
    changes: Vec<Change>,
    notes: Vec<String>,
    current: CurrentConfig,
    during: Journal,
    after: Journal,
}

impl Plan {
    /// Returns the changes, in order.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the notes for the administrator.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Describes the changes for people, with the names of interfaces.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let line = |change: &Change| {
            let text = change.to_string();
            let Some(device) = change.device() else { return text };
            text.replacen(&format!(" dev {device}"), &format!(" dev {}", self.current.name(device)), 1)
        };
        self.changes.iter().map(line).collect()
    }

    /// Returns the journal after the changes.
    #[cfg(test)]
    pub(super) fn after(&self) -> Journal {
        self.after.clone()
    }

    /// Adds a note of how many connections will end because every subflow comes from an endpoint that is
    /// removed.
    pub(super) fn note_closed_connections(&mut self, sockets: &[TcpSocket]) {
        let gone: Vec<_> = self.changes.iter().filter_map(Change::removed_address).collect();
        let mut ends: BTreeMap<u32, bool> = BTreeMap::new();
        for socket in sockets {
            let Some(subflow) = socket.subflow else { continue };
            *ends.entry(subflow.token).or_insert(true) &= gone.contains(&socket.local.ip());
        }
        match ends.values().filter(|ends| **ends).count() {
            0 => {}
            1 => self.notes.push("1 connection has no subflow but from these addresses, and ends".into()),
            n => {
                self.notes.push(format!("{n} connections have no subflow but from these addresses, and end"));
            }
        }
    }

    /// Writes the planned changes to the journal. Call this before the first change.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn write_intent(&self, state_dir: &Path) -> Result<()> {
        // The journal may get new entries even though nothing changes.
        if self.changes.is_empty() && self.during == self.after {
            return Ok(());
        }
        JournalFile::of(&self.current, state_dir)?.write(&self.during)
    }

    /// Makes all changes, and stops at the first that fails. An endpoint that cannot be added does not
    /// prevent the changes after it; its error is returned at the end.
    pub(super) fn apply(&self) -> Result<()> {
        self.apply_by(Change::apply)
    }

    pub(super) fn apply_by(&self, mut make: impl FnMut(&Change) -> Result<()>) -> Result<()> {
        let mut refused = Ok(());
        for change in &self.changes {
            match make(change) {
                Err(e) if matches!(change, Change::AddEndpoint(_)) => refused = refused.and(Err(e)),
                done => done?,
            }
        }
        refused
    }

    /// Writes to the journal what has been done.
    pub(super) fn commit(&self, state_dir: &Path) -> Result<()> {
        if self.changes.is_empty() && self.during == self.after {
            return Ok(());
        }
        JournalFile::of(&self.current, state_dir)?.write(&self.after)
    }

    /// Removes the journal, because everything is as before.
    pub(super) fn remove_journal(&self, state_dir: &Path) -> Result<()> {
        JournalFile::of(&self.current, state_dir)?.remove()
    }
}

/// Returns `list`, and the elements of `more` that are not in it.
fn union<T: Clone + PartialEq>(list: Vec<T>, more: &[T]) -> Vec<T> {
    let mut all = list;
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

/// Plans the changes from the present configuration to the desired one.
pub(super) fn diff(desired: &DesiredConfig, current: &CurrentConfig, journal: &Journal) -> Plan {
    let mut changes = Vec::new();
    let (mut during, mut after) = (journal.clone(), journal.clone());
    if current.enabled != "1" {
        changes.push(Change::Enable("1".into()));
        let was = journal.enabled.clone().unwrap_or_else(|| current.enabled.clone());
        (during.enabled, after.enabled) = (Some(was.clone()), Some(was));
    }
    if desired.limits != current.limits {
        changes.push(Change::Limits(desired.limits));
        let mut saved =
            journal.limits.clone().unwrap_or(SavedLimits { was: pair(current.limits), set: vec![] });
        saved.set = union(saved.set, &[pair(desired.limits)]);
        (during.limits, after.limits) = (Some(saved.clone()), Some(saved));
    }
    let Endpoints { first, last, ours, replaced, restored } = endpoints(desired, current, journal);
    changes.extend(first);

    let old = journal.rules();
    let gone = old.iter().filter(|rule| current.rules.contains(rule) && !desired.rules.contains(rule));
    changes.extend(gone.cloned().map(Change::DelRule));
    let new_rules: Vec<_> =
        desired.rules.iter().filter(|rule| !current.rules.contains(rule)).cloned().collect();
    let rules = union(old, &new_rules);

    let old = journal.routes();
    let gone = old.iter().filter(|route| current.routes.contains(route) && !desired.routes.contains(route));
    changes.extend(gone.copied().map(Change::DelRoute));
    let new: Vec<_> =
        desired.routes.iter().filter(|route| !current.routes.contains(route)).copied().collect();
    let routes = union(old, &new);

    changes.extend(new.into_iter().map(Change::AddRoute));
    changes.extend(new_rules.into_iter().map(Change::AddRule));
    changes.extend(last);

    during.set_endpoints(&union(journal.endpoints(), &ours));
    during.set_replaced(&replaced);
    during.set_rules(&rules);
    during.set_routes(&routes);
    let is_kept =
        |e: &Endpoint| with_ip(&desired.endpoints, e).is_some() || with_ip(&desired.withheld, e).is_some();
    let wanted: Vec<_> = ours.into_iter().filter(is_kept).collect();
    after.set_endpoints(&wanted);
    let kept: Vec<_> = replaced.into_iter().filter(|e| !restored.contains(e)).collect();
    after.set_replaced(&kept);
    after.set_rules(&rules.into_iter().filter(|rule| desired.rules.contains(rule)).collect::<Vec<_>>());
    after.set_routes(&routes.into_iter().filter(|route| desired.routes.contains(route)).collect::<Vec<_>>());
    Plan { changes, notes: desired.notes.clone(), current: current.clone(), during, after }
}

/// Plans the changes that undo a set-up.
pub(super) fn rollback(current: &CurrentConfig, journal: &Journal) -> Plan {
    let mut notes = Vec::new();
    let mut changes = endpoints(&DesiredConfig::default(), current, journal).first;
    for was in journal.replaced() {
        if was.device.is_some_and(|device| !current.has_device(device)) {
            notes.push(format!("the endpoint {} is not put back: its interface is gone", was.ip));
        }
    }
    let rules = journal.rules().into_iter().filter(|rule| current.rules.contains(rule));
    changes.extend(rules.map(Change::DelRule));
    let routes = journal.routes().into_iter().filter(|route| current.routes.contains(route));
    changes.extend(routes.map(Change::DelRoute));
    if let Some(SavedLimits { was, set }) = &journal.limits {
        let now = pair(current.limits);
        if set.contains(&now) {
            let (subflows, add_addr_accepted) = *was;
            changes.push(Change::Limits(Limits { subflows, add_addr_accepted }));
        } else if now != *was {
            let (subflows, accepted) = now;
            notes.push(format!(
                "the limits stay at {subflows} subflows and {accepted} accepted addresses: somebody else has \
                 set them since"
            ));
        }
    }
    if let Some(was) = &journal.enabled {
        match current.enabled.as_str() {
            "1" => changes.push(Change::Enable(was.clone())),
            now if now == was => {}
            now => notes.push(format!("net.mptcp.enabled stays {now}: somebody else has set it since")),
        }
    }
    Plan { changes, notes, current: current.clone(), during: journal.clone(), after: Journal::default() }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt;

    use anabranch_net::netlink::{EndpointFlags, Route, Rule};

    use super::super::desired::desired;
    use super::super::desired::tests::{current, options};
    use super::super::journal::is_implicit;
    use super::super::{Options, Program};
    use super::*;

    /// Simulates the first `steps` of `changes`.
    pub(crate) fn simulate(current: &mut CurrentConfig, changes: &[Change], steps: usize) {
        for change in &changes[..steps] {
            match change.clone() {
                Change::Enable(value) => current.enabled = value,
                Change::Limits(limits) => current.limits = limits,
                Change::AddRoute(route) => current.routes.push(route),
                Change::DelRoute(route) => current.routes.retain(|r| *r != route),
                Change::AddRule(rule) => current.rules.push(rule),
                Change::DelRule(rule) => current.rules.retain(|r| *r != rule),
                Change::AddEndpoint(e) => {
                    assert_eq!(e.flags - EndpointFlags::IMPLICIT, e.flags, "programs cannot add {e:?}");
                    assert!(current.endpoints.len() < 8, "there is no room for {e:?}");
                    if let Some(found) = with_ip(&current.endpoints, &e) {
                        assert!(is_implicit(&found) && e.id == 0, "{e:?} is there");
                        current.endpoints.retain(|one| *one != found);
                        current.endpoints.push(Endpoint { id: found.id, ..e });
                        continue;
                    }
                    let is_free = |id: &u8| current.endpoints.iter().all(|one| one.id != *id);
                    let id = if e.id > 0 { e.id } else { (1..).find(is_free).unwrap() };
                    assert!(is_free(&id), "the number {id} is taken");
                    current.endpoints.push(Endpoint { id, ..e });
                }
                Change::DelEndpoint(e) => {
                    assert!(current.endpoints.contains(&e), "{e:?} is not there");
                    current.endpoints.retain(|one| *one != e);
                }
                Change::SetFlags(e, flags) => {
                    current.endpoints.iter_mut().filter(|one| **one == e).for_each(|one| one.flags = flags);
                }
            }
        }
    }

    fn sorted(current: &CurrentConfig) -> impl PartialEq + fmt::Debug {
        let mut lists = [Vec::new(), Vec::new(), Vec::new()];
        lists[0].extend(current.routes.iter().map(Route::to_string));
        lists[1].extend(current.rules.iter().map(Rule::to_string));
        lists[2].extend(current.endpoints.iter().map(|e| format!("{e:?}")));
        lists.iter_mut().for_each(|list| list.sort());
        (lists, current.limits, current.enabled.clone())
    }

    /// Interrupts a set-up from `before` after each number of steps, then checks that tearing down restores
    /// `before`.
    fn there_and_back(before: &CurrentConfig) {
        let desired = desired(&options(), before, &Journal::default()).unwrap();
        let plan = diff(&desired, before, &Journal::default());
        for steps in 0..=plan.changes.len() {
            let mut current = before.clone();
            simulate(&mut current, &plan.changes, steps);
            // This must hold with and without `commit`, and if the teardown is interrupted too.
            let after = [&plan.during, &plan.after];
            for journal in &after[..if steps == plan.changes.len() { 2 } else { 1 }] {
                let whole = rollback(&current, journal);
                for cut in 0..=whole.changes.len() {
                    let mut current = current.clone();
                    simulate(&mut current, &whole.changes, cut);
                    let rest = rollback(&current, journal);
                    simulate(&mut current, &rest.changes, rest.changes.len());
                    assert_eq!(sorted(&current), sorted(before), "after {steps} steps, {cut} back");
                    assert!(rollback(&current, journal).changes.is_empty());
                }
            }
            // A second set-up from the middle completes everything, and a third finds nothing to do.
            let again = diff(&desired, &current, &plan.during);
            simulate(&mut current, &again.changes, again.changes.len());
            let third = diff(&desired, &current, &again.after);
            assert_eq!(third.changes, [], "after {steps} steps");
            assert_eq!(third.after, again.after);
            let whole = rollback(&current, &again.after);
            simulate(&mut current, &whole.changes, whole.changes.len());
            assert_eq!(sorted(&current), sorted(before));
        }
    }

    #[test]
    fn from_nothing() {
        there_and_back(&current());
        there_and_back(&CurrentConfig { enabled: "0".into(), ..current() });
    }

    #[test]
    fn what_was_there_is_put_back() {
        let mut before = current();
        let endpoint = |ip: &str, device, id, flags| Endpoint {
            id,
            flags,
            ..Endpoint::subflow(ip.parse().unwrap(), device)
        };
        before.endpoints = vec![
            endpoint("192.168.1.7", None, 3, EndpointFlags::SIGNAL | EndpointFlags::FULLMESH),
            endpoint("2001:db8::7", Some(2), 4, EndpointFlags::SUBFLOW),
            endpoint("203.0.113.1", None, 5, EndpointFlags::SIGNAL),
        ];
        before.limits = Limits { subflows: 8, add_addr_accepted: 8 };
        let desired = desired(&options(), &before, &Journal::default()).unwrap();
        // Another program made a rule exactly as it is wanted.
        before.rules.push(desired.rules[1].clone());
        let plan = diff(&desired, &before, &Journal::default());
        let lines: Vec<_> = plan.describe();
        assert!(lines.contains(&"mptcp endpoint del 192.168.1.7".to_owned()), "{lines:#?}");
        assert!(
            lines.contains(&"mptcp endpoint add 10.9.8.7 dev wwan0 subflow backup".to_owned()),
            "{lines:#?}"
        );
        assert!(!lines.iter().any(|line| line.contains("limits") || line.contains("endpoint add 2001")));
        there_and_back(&before);
    }

    #[test]
    fn a_program_puts_back_what_was_there_though_it_changed_nothing() {
        let mut before = current();
        let wanted = desired(&options(), &before, &Journal::default()).unwrap();
        let plan = diff(&wanted, &before, &Journal::default());
        simulate(&mut before, &plan.changes, plan.changes.len());
        // An administrator's set-up has made all endpoints before.
        let of_program = Options { program: Some(Program::default()), table_base: 200, ..options() };
        let wanted = desired(&of_program, &before, &Journal::default()).unwrap();
        let plan = diff(&wanted, &before, &Journal::default());
        assert!(plan.describe().iter().all(|line| !line.contains("endpoint")), "{:?}", plan.describe());
        let mut current = before.clone();
        simulate(&mut current, &plan.changes, plan.changes.len());
        let gone = current.endpoints.remove(1);
        current.endpoints[0].flags = EndpointFlags::SUBFLOW | EndpointFlags::BACKUP;
        let back = rollback(&current, &plan.after);
        assert!(back.changes.contains(&Change::AddEndpoint(gone)), "{:?}", back.changes);
        simulate(&mut current, &back.changes, back.changes.len());
        assert_eq!(sorted(&current), sorted(&before));
    }

    #[test]
    fn a_program_goes_without_an_interface_for_a_while() {
        let mut before = current();
        let wanted = desired(&options(), &before, &Journal::default()).unwrap();
        // Tries it with and without a set-up by an administrator.
        for is_set_up in [false, true] {
            if is_set_up {
                let plan = diff(&wanted, &before, &Journal::default());
                simulate(&mut before, &plan.changes, plan.changes.len());
            }
            for orders in [[false, true, false], [true, false, true]] {
                let (mut current, mut journal) = (before.clone(), Journal::default());
                for is_out in orders {
                    let without = if is_out { vec!["wlan0".into()] } else { Vec::new() };
                    let program = Some(Program { without, ..Program::default() });
                    let options = Options { program, table_base: 200, ..options() };
                    let wanted = desired(&options, &current, &journal).unwrap();
                    let plan = diff(&wanted, &current, &journal);
                    simulate(&mut current, &plan.changes, plan.changes.len());
                    assert_eq!(current.endpoints.iter().all(|e| e.device != Some(2)), is_out);
                    assert!(current.endpoints.iter().any(|e| e.device == Some(3)));
                    assert_eq!(diff(&wanted, &current, &plan.after).changes, []);
                    journal = plan.after;
                }
                let back = rollback(&current, &journal);
                simulate(&mut current, &back.changes, back.changes.len());
                assert_eq!(sorted(&current), sorted(&before));
            }
        }
    }

    #[test]
    fn only_what_changed_is_changed() {
        let before = current();
        let first =
            diff(&desired(&options(), &before, &Journal::default()).unwrap(), &before, &Journal::default());
        let mut current = before.clone();
        simulate(&mut current, &first.changes, first.changes.len());
        // DHCP gives another address.
        current.addresses[2].ip = "10.9.8.6".parse().unwrap();
        let second = diff(&desired(&options(), &current, &first.after).unwrap(), &current, &first.after);
        let expected = [
            "mptcp endpoint del 10.9.8.7 dev wwan0",
            "rule del 26226: from 10.9.8.7 lookup main suppress_prefixlength 0",
            "rule del 26227: from 10.9.8.7 lookup 101",
            "rule add 26226: from 10.9.8.6 lookup main suppress_prefixlength 0",
            "rule add 26227: from 10.9.8.6 lookup 101",
            "mptcp endpoint add 10.9.8.6 dev wwan0 subflow backup",
        ];
        assert_eq!(second.describe(), expected);
        simulate(&mut current, &second.changes, second.changes.len());
        // The interface is no backup any more.
        let mut options = options();
        options.backup.clear();
        let third = diff(&desired(&options, &current, &second.after).unwrap(), &current, &second.after);
        assert_eq!(third.describe(), ["mptcp endpoint change 10.9.8.6 dev wwan0 subflow"]);
        simulate(&mut current, &third.changes, third.changes.len());
        // There is one uplink less.
        options.interfaces.pop();
        let fourth = diff(&desired(&options, &current, &third.after).unwrap(), &current, &third.after);
        assert_eq!(fourth.describe().len(), 4, "{:#?}", fourth.describe());
        simulate(&mut current, &fourth.changes, fourth.changes.len());
        let whole = rollback(&current, &fourth.after);
        simulate(&mut current, &whole.changes, whole.changes.len());
        assert_eq!(sorted(&current), sorted(&before));
    }

    #[test]
    fn what_somebody_else_changed_stays() {
        let before = current();
        let plan =
            diff(&desired(&options(), &before, &Journal::default()).unwrap(), &before, &Journal::default());
        let mut current = before;
        simulate(&mut current, &plan.changes, plan.changes.len());
        current.limits.subflows = 7;
        current.links.pop();
        let whole = rollback(&current, &plan.after);
        assert!(whole.notes[0].starts_with("the limits stay at 7 subflows"), "{:?}", whole.notes);
        assert!(!whole.changes.iter().any(|change| matches!(change, Change::Limits(_))));
    }
}
