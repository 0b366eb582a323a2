//! Tests of what a program can say of its endpoints: numbers, kept ones, those of others.

use anabranch_net::netlink::{Endpoint, EndpointFlags};

use super::current::CurrentConfig;
use super::desired::desired;
use super::desired::tests::{current, options};
use super::journal::Journal;
use super::plan::tests::simulate;
use super::plan::{diff, rollback};
use super::{Options, Plan, Program};

fn planned(program: Program, current: &mut CurrentConfig, journal: &Journal) -> (Plan, Vec<String>) {
    let options = Options { program: Some(program), table_base: 200, ..options() };
    let wanted = desired(&options, current, journal).unwrap();
    let plan = diff(&wanted, current, journal);
    simulate(current, plan.changes(), plan.changes().len());
    let lines = plan.describe().into_iter().filter(|line| line.contains("endpoint")).collect();
    (plan, lines)
}

fn numbered(ids: &[(&str, u8)]) -> Program {
    let ids = ids.iter().map(|(ip, id)| (ip.parse().unwrap(), *id)).collect();
    Program { ids, ..Program::default() }
}

#[test]
fn an_endpoint_has_its_number_and_is_made_anew_with_it() {
    let mut now = current();
    let before = now.clone();
    let program = numbered(&[("192.168.1.7", 3), ("10.9.8.7", 4)]);
    let (plan, _) = planned(program.clone(), &mut now, &Journal::default());
    let id = |now: &CurrentConfig, ip: &str| {
        now.endpoints.iter().find(|e| e.ip.to_string() == ip).map(|e| (e.id, e.flags))
    };
    let backup = EndpointFlags::SUBFLOW | EndpointFlags::BACKUP;
    assert_eq!(id(&now, "192.168.1.7"), Some((3, EndpointFlags::SUBFLOW)));
    assert_eq!(id(&now, "10.9.8.7"), Some((4, backup)));
    let (plan, lines) = planned(program, &mut now, &plan.after());
    assert!(lines.is_empty(), "{lines:?}");
    let (plan, lines) = planned(numbered(&[("192.168.1.7", 7)]), &mut now, &plan.after());
    assert!(lines.is_empty(), "it keeps the number that it has: {lines:?}");
    let renewed = vec!["192.168.1.7".parse().unwrap()];
    let program = Program { renewed, ..numbered(&[("192.168.1.7", 3)]) };
    let (plan, lines) = planned(program, &mut now, &plan.after());
    let expected =
        ["mptcp endpoint del 192.168.1.7 dev wlan0", "mptcp endpoint add 192.168.1.7 dev wlan0 subflow"];
    assert_eq!(lines, expected);
    assert_eq!(id(&now, "192.168.1.7"), Some((3, EndpointFlags::SUBFLOW)));
    let program = Program { fullmesh: true, ..numbered(&[("192.168.1.7", 7)]) };
    let (plan, _) = planned(program, &mut now, &plan.after());
    assert!(now.endpoints.iter().all(|e| e.flags.has(EndpointFlags::FULLMESH)));
    let back = rollback(&now, &plan.after());
    simulate(&mut now, back.changes(), back.changes().len());
    assert_eq!(now.endpoints, before.endpoints);
}

#[test]
fn a_kept_endpoint_outlives_its_interface() {
    let mut now = current();
    let (plan, _) = planned(Program::default(), &mut now, &Journal::default());
    let endpoints = now.endpoints.clone();
    now.links[2].carrier = false;
    let kept = Program { kept: vec!["10.9.8.7".parse().unwrap()], ..Program::default() };
    let (plan, lines) = planned(kept, &mut now, &plan.after());
    assert!(lines.is_empty() && now.endpoints == endpoints, "{lines:?}");
    let (_, lines) = planned(Program::default(), &mut now, &plan.after());
    assert_eq!(lines, ["mptcp endpoint del 10.9.8.7 dev wwan0"]);
}

#[test]
fn a_kept_endpoint_changes_while_its_interface_works() {
    let mut now = current();
    let (plan, _) = planned(Program::default(), &mut now, &Journal::default());
    let kept = vec!["10.9.8.7".parse().unwrap()];
    let program = Program { fullmesh: true, kept, ..Program::default() };
    let (_, lines) = planned(program, &mut now, &plan.after());
    assert!(lines.iter().any(|line| line.contains("10.9.8.7") && line.contains("fullmesh")), "{lines:?}");
}

#[test]
fn endpoints_of_others_are_left_and_said() {
    let mut now = current();
    let other = Endpoint {
        id: 9,
        flags: EndpointFlags::SIGNAL,
        ..Endpoint::subflow("192.168.1.7".parse().unwrap(), None)
    };
    now.endpoints.push(other);
    let program = Program { leaves_others: true, ..Program::default() };
    let (plan, lines) = planned(program, &mut now, &Journal::default());
    assert!(lines.iter().all(|line| !line.contains("192.168.1.7")), "{lines:?}");
    assert_eq!(
        plan.notes(),
        ["192.168.1.7 has an endpoint that another program made (number 9, signal): it is left as it is"]
    );
    assert!(now.endpoints.contains(&other));
    let back = rollback(&now, &plan.after());
    simulate(&mut now, back.changes(), back.changes().len());
    assert_eq!(now.endpoints, [other]);
}

#[test]
fn no_interface_is_no_error_of_a_program() {
    let options =
        Options { interfaces: vec![], backup: vec![], program: Some(Program::default()), ..options() };
    let wanted = desired(&options, &current(), &Journal::default()).unwrap();
    assert!(wanted.endpoints.is_empty() && wanted.routes.is_empty());
}
