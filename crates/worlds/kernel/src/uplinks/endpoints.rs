//! Plans the changes of endpoints, and what the journal remembers of them.
//!
//! Linux has rules of its own for endpoints (`net/mptcp/pm_netlink.c`):
//!
//! * There are [`ENDPOINTS_MAX`](anabranch_net::netlink::ENDPOINTS_MAX) at most.
//! * Linux makes an implicit endpoint for an address that a connection happens to use. An endpoint for that
//!   address replaces it and keeps its id, but only if it is added without an id: its own id is `EBUSY`, any
//!   other `EINVAL`. Programs cannot add an implicit endpoint, so none is ever restored.
//! * An id that another endpoint has is `EBUSY`.

use anabranch_net::netlink::{Endpoint, EndpointFlags};

use super::change::Change;
use super::current::CurrentConfig;
use super::desired::DesiredConfig;
use super::journal::{Journal, is_implicit, is_ours, with_ip};

/// Whether two endpoints differ in nothing but their ids.
fn same(a: &Endpoint, b: &Endpoint) -> bool {
    Endpoint { id: 0, ..*a } == Endpoint { id: 0, ..*b }
}

/// Puts `endpoint` in the place of those with its address and port.
fn put(list: &mut Vec<Endpoint>, endpoint: Endpoint) {
    list.retain(|old| old.ip != endpoint.ip || old.port != endpoint.port);
    list.push(endpoint);
}

/// The changes of endpoints, and the journal's two lists of endpoints.
pub(super) struct Endpoints {
    pub(super) first: Vec<Change>,
    pub(super) last: Vec<Change>,
    pub(super) ours: Vec<Endpoint>,
    pub(super) replaced: Vec<Endpoint>,
    /// Replaced endpoints that are restored, or that cannot be.
    pub(super) restored: Vec<Endpoint>,
}

pub(super) fn endpoints(desired: &DesiredConfig, current: &CurrentConfig, journal: &Journal) -> Endpoints {
    let (ours, replaced) = (journal.endpoints(), journal.replaced());
    let mut e = Endpoints { first: vec![], last: vec![], ours, replaced, restored: vec![] };
    e.remove_unwanted(desired, current);
    e.withhold(desired, current);
    for new in &desired.endpoints {
        e.want(new, desired, current);
    }
    // What replaces an implicit endpoint needs no room of its own, and comes first. Endpoints with a fixed id
    // come before the others, or the kernel might give that id to another one.
    let has_implicit =
        |new: &Endpoint| with_ip(&current.endpoints, new).is_some_and(|found| is_implicit(&found));
    e.last.sort_by_key(|change| match change {
        Change::AddEndpoint(new) if has_implicit(new) => 0,
        Change::AddEndpoint(Endpoint { id: 1.., .. }) => 1,
        _ => 2,
    });
    // A change of flags comes before everything else: a link that becomes active is so before another goes,
    // and no refusal prevents it.
    e.first.sort_by_key(|change| !matches!(change, Change::SetFlags(..)));
    e
}

impl Endpoints {
    /// Removes endpoints that are not wanted any more, and restores those that they replaced. An endpoint
    /// that another program has made in their place stays.
    fn remove_unwanted(&mut self, desired: &DesiredConfig, current: &CurrentConfig) {
        let is_known = |old: &&Endpoint| {
            with_ip(&desired.endpoints, old).is_some() || with_ip(&desired.withheld, old).is_some()
        };
        // The journal of an interrupted change may have an address twice, on two interfaces.
        let mut seen = Vec::new();
        let is_first = |old: &&Endpoint| {
            let is_new = with_ip(&seen, old).is_none();
            seen.push(**old);
            is_new
        };
        for old in self.ours.clone().iter().filter(|old| !is_known(old)).filter(is_first) {
            let saved = with_ip(&self.replaced, old);
            self.restored.extend(saved);
            let was = saved.filter(|was| !is_implicit(was));
            let found = with_ip(&current.endpoints, old);
            let keeps_id = found.is_some_and(|found| is_implicit(&found));
            if let Some(found) = found.filter(|_| !keeps_id) {
                if Some(found) == was || !is_ours(&self.ours, &found) {
                    continue;
                }
                self.first.push(Change::DelEndpoint(found));
            }
            if let Some(was) = was.filter(|was| was.device.is_none_or(|device| current.has_device(device))) {
                let id = if keeps_id { 0 } else { was.id };
                self.first.push(Change::AddEndpoint(Endpoint { id, ..was }));
            }
        }
    }

    /// Removes the endpoints that must not exist for now. Implicit ones open no subflows, and stay.
    fn withhold(&mut self, desired: &DesiredConfig, current: &CurrentConfig) {
        for not in &desired.withheld {
            let found = with_ip(&current.endpoints, not).filter(|found| !is_implicit(found));
            let Some(found) = found else { continue };
            self.first.push(Change::DelEndpoint(found));
            if !is_ours(&self.ours, &found) {
                put(&mut self.replaced, found);
                put(&mut self.ours, *not);
            }
        }
    }

    /// Makes or changes an endpoint so that it is as wanted.
    fn want(&mut self, new: &Endpoint, desired: &DesiredConfig, current: &CurrentConfig) {
        let found = with_ip(&current.endpoints, new);
        let Some(found) = found.filter(|found| !is_implicit(found)) else {
            // If the kernel made an endpoint for this address by itself, ours replaces it and keeps its id.
            let id = if found.is_some() { 0 } else { new.id };
            self.last.push(Change::AddEndpoint(Endpoint { id, ..*new }));
            put(&mut self.ours, Endpoint { id: found.map_or(new.id, |found| found.id), ..*new });
            return;
        };
        let ours = is_ours(&self.ours, &found);
        let renews = ours && desired.renewed.contains(&new.ip);
        if same(&found, new) && !renews {
            if desired.remembers_all && !ours {
                put(&mut self.replaced, found);
                put(&mut self.ours, Endpoint { id: found.id, ..*new });
            }
            return;
        }
        if !ours {
            put(&mut self.replaced, found);
        }
        let backup = EndpointFlags::BACKUP;
        let only_flags = found.device == new.device && found.flags - backup == new.flags - backup;
        if ours && !renews && only_flags {
            self.first.push(Change::SetFlags(found, new.flags));
            put(&mut self.ours, Endpoint { id: found.id, ..*new });
        } else {
            let new = Endpoint { id: if new.id > 0 { new.id } else { found.id }, ..*new };
            self.first.push(Change::DelEndpoint(found));
            self.last.push(Change::AddEndpoint(new));
            put(&mut self.ours, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::desired::desired;
    use super::super::desired::tests::{current, options};
    use super::super::plan::tests::simulate;
    use super::super::plan::{diff, rollback};
    use super::super::{Options, Plan, Program};
    use super::*;

    const BACKUP: EndpointFlags = EndpointFlags::BACKUP;

    fn endpoint(ip: &str, device: Option<u32>, id: u8, flags: EndpointFlags) -> Endpoint {
        Endpoint { id, flags, ..Endpoint::subflow(ip.parse().unwrap(), device) }
    }

    /// The endpoint that Linux makes for the address of `wlan0`.
    fn implicit() -> Endpoint {
        endpoint("192.168.1.7", None, 1, EndpointFlags::IMPLICIT)
    }

    fn as_program(program: Program, current: &mut CurrentConfig, journal: &Journal) -> Plan {
        let options = Options { program: Some(program), table_base: 200, ..options() };
        let plan = diff(&desired(&options, current, journal).unwrap(), current, journal);
        simulate(current, plan.changes(), plan.changes().len());
        plan
    }

    fn put_back(current: &mut CurrentConfig, journal: &Journal) -> Plan {
        let plan = rollback(current, journal);
        simulate(current, plan.changes(), plan.changes().len());
        plan
    }

    fn daemon() -> Program {
        let ids = [("192.168.1.7", 1), ("2001:db8::7", 2), ("10.9.8.7", 3)];
        let ids = ids.into_iter().map(|(ip, id)| (ip.parse().unwrap(), id)).collect();
        Program { ids, leaves_others: true, ..Program::default() }
    }

    #[test]
    fn an_implicit_endpoint_is_replaced_without_an_id_and_the_journal_has_its_id() {
        let mut now = current();
        now.endpoints.push(Endpoint { id: 9, ..implicit() });
        let plan = as_program(daemon(), &mut now, &Journal::default());
        let first = plan.after().endpoints().into_iter().find(|e| e.ip == implicit().ip);
        assert_eq!(first.map(|e| e.id), Some(9));
        assert_eq!((now.endpoints.len(), now.endpoints[0].id), (3, 9));
        assert!(as_program(daemon(), &mut now, &plan.after()).changes().is_empty());
        put_back(&mut now, &plan.after());
        assert_eq!(now.endpoints, []);
    }

    #[test]
    fn an_implicit_endpoint_of_a_withheld_link_stays_and_is_not_restored() {
        let mut now = current();
        now.endpoints.push(implicit());
        let without = Program { without: vec!["wlan0".into()], ..daemon() };
        let plan = as_program(without.clone(), &mut now, &Journal::default());
        assert!(now.endpoints.contains(&implicit()));
        assert_eq!(plan.after().replaced(), []);
        let plan = as_program(daemon(), &mut now, &plan.after());
        let plan = as_program(without, &mut now, &plan.after());
        assert!(now.endpoints.iter().all(|e| e.device != Some(2)));
        put_back(&mut now, &plan.after());
        assert_eq!(now.endpoints, []);
        // An earlier version may have written one to the journal.
        let mut journal = plan.after();
        journal.set_endpoints(&[endpoint("192.168.1.7", Some(2), 1, EndpointFlags::SUBFLOW)]);
        journal.set_replaced(&[implicit()]);
        assert!(!put_back(&mut now, &journal).changes().iter().any(|c| matches!(c, Change::AddEndpoint(_))));
        // What was replaced is restored in the place of one that Linux has made since.
        let was = endpoint("192.168.1.7", None, 4, EndpointFlags::SIGNAL);
        journal.set_replaced(&[was]);
        now.endpoints.push(implicit());
        put_back(&mut now, &journal);
        assert_eq!(now.endpoints, [Endpoint { id: 1, ..was }]);
    }

    #[test]
    fn an_endpoint_that_another_program_made_in_the_place_of_ours_stays() {
        let mut now = current();
        let plan = as_program(daemon(), &mut now, &Journal::default());
        let signal = EndpointFlags::SIGNAL | EndpointFlags::SUBFLOW;
        for other in [
            endpoint("192.168.1.7", None, 1, signal),
            endpoint("192.168.1.7", Some(2), 7, EndpointFlags::SUBFLOW),
        ] {
            let mut now = now.clone();
            now.endpoints.retain(|e| e.ip != other.ip);
            now.endpoints.push(other);
            let mut ended = now.clone();
            put_back(&mut ended, &plan.after());
            assert_eq!(ended.endpoints, [other]);
            let next = as_program(daemon(), &mut now, &plan.after());
            assert_eq!(next.changes(), []);
            assert!(next.notes()[0].contains("another program made"), "{:?}", next.notes());
            assert!(now.endpoints.contains(&other));
            put_back(&mut now, &next.after());
            assert_eq!(now.endpoints, [other]);
        }
        // A changed backup flag does not make it an endpoint of others.
        now.endpoints[0].flags = EndpointFlags::SUBFLOW | BACKUP;
        put_back(&mut now, &plan.after());
        assert_eq!(now.endpoints, []);
    }

    #[test]
    fn flags_change_first_and_no_refused_endpoint_prevents_what_follows() {
        let mut now = current();
        let plan = as_program(daemon(), &mut now, &Journal::default());
        now.endpoints.retain(|e| e.device != Some(2));
        let options = Options { backup: vec![], program: Some(daemon()), table_base: 200, ..options() };
        let journal = plan.after();
        let next = diff(&desired(&options, &now, &journal).unwrap(), &now, &journal);
        assert!(matches!(next.changes()[0], Change::SetFlags(..)), "{:?}", next.describe());
        let mut made = Vec::new();
        let done = next.apply_by(|change| {
            made.push(change.clone());
            let refused = || Err(super::super::Error::Unusable(format!("refused: {change}")));
            if matches!(change, Change::AddEndpoint(_)) { refused() } else { Ok(()) }
        });
        assert_eq!(made, next.changes());
        let first = "refused: mptcp endpoint add 192.168.1.7 dev 2 subflow";
        assert_eq!(done.unwrap_err().to_string(), first);
    }

    #[test]
    fn eight_endpoints_are_made_at_most_with_those_of_others() {
        let mut now = current();
        let others = (0..6).map(|n| endpoint(&format!("192.0.2.{n}"), None, 100 + n, EndpointFlags::SIGNAL));
        now.endpoints.extend(others);
        let before = now.endpoints.clone();
        let plan = as_program(daemon(), &mut now, &Journal::default());
        let says = "10.9.8.7 gets no endpoint: the kernel has 8 at most, and 6 are not of this set-up";
        assert_eq!(plan.notes(), [says]);
        assert_eq!(now.endpoints.len(), 8);
        assert!(as_program(daemon(), &mut now, &plan.after()).changes().is_empty());
        now.endpoints.remove(0);
        let plan = as_program(daemon(), &mut now, &plan.after());
        let add = "mptcp endpoint add 10.9.8.7 dev wwan0 subflow backup";
        assert_eq!(plan.describe(), ["mptcp limits set subflows 3 add_addr_accepted 2", add]);
        // One of others is added: the backup had no room then.
        put_back(&mut now, &plan.after());
        assert_eq!(now.endpoints, before[1..]);
    }
}
