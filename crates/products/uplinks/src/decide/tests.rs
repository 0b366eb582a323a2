//! The promises of the decisions, in virtual time.

use anabranch_kernel::uplinks::{SurveyedAddress, SurveyedLink};
use anabranch_net::netlink::{Endpoint, EndpointFlags};
use proptest::prelude::*;

use super::*;

const fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a link that works, with this last part of its address.
fn up(name: &str, index: u32, host: u8) -> SurveyedLink {
    let addresses = vec![SurveyedAddress {
        ip: IpAddr::from([10, index as u8, 0, host]),
        gateway: Some(IpAddr::from([10, index as u8, 0, 254])),
    }];
    SurveyedLink {
        name: name.to_owned(),
        index,
        is_line: true,
        has_default_route: true,
        addresses: Ok(addresses),
    }
}

fn down(name: &str, index: u32) -> SurveyedLink {
    SurveyedLink { addresses: Err(format!("{name} is down")), has_default_route: false, ..up(name, index, 1) }
}

fn survey(links: &[SurveyedLink]) -> Survey {
    Survey { links: links.to_vec(), ..Survey::default() }
}

/// Shows a network, and returns what is wanted then.
fn show(decider: &mut Decider, now: Time, links: &[SurveyedLink]) -> Wanted {
    decider.handle(now, Input::Network(&survey(links)));
    drain(decider, now);
    decider.wanted().clone()
}

/// Returns the number of changes of what is wanted, and when to come back.
fn drain(decider: &mut Decider, now: Time) -> (usize, Time) {
    let mut changes = 0;
    loop {
        match decider.poll(now) {
            Output::Event(_) => changes += 1,
            Output::Send(()) => unreachable!("it sends nothing"),
            Output::Wait(until) => return (changes, until),
        }
    }
}

fn two() -> [SurveyedLink; 2] {
    [up("eth0", 2, 1), up("wlan0", 3, 1)]
}

fn state(decider: &Decider, name: &str) -> (State, String) {
    let report = decider.report().into_iter().find(|report| report.name == name).unwrap();
    (report.state, report.why)
}

#[test]
fn two_links_carry_and_one_that_goes_is_gone_at_once() {
    let mut decider = Decider::new(Policy::default());
    let wanted = show(&mut decider, at(0), &two());
    assert_eq!(wanted.interfaces, ["eth0", "wlan0"]);
    assert_eq!((wanted.backup.len(), wanted.without.len(), wanted.kept.len()), (0, 0, 0));
    assert_eq!(wanted.ids, BTreeMap::from([(ip("10.2.0.1"), 1), (ip("10.3.0.1"), 2)]));
    let wanted = show(&mut decider, at(1_000), &[up("eth0", 2, 1), down("wlan0", 3)]);
    assert_eq!(wanted.interfaces, ["eth0", "wlan0"], "the table stays");
    assert_eq!(wanted.ids, BTreeMap::from([(ip("10.2.0.1"), 1)]));
    assert_eq!(state(&decider, "wlan0"), (State::Unusable, "wlan0 is down".to_owned()));
    // It returns when it has held for 50 ms, with its number.
    let wanted = show(&mut decider, at(1_100), &two());
    assert_eq!((wanted.ids.len(), wanted.without), (1, vec!["wlan0".to_owned()]));
    let why = "it came back, and was lost once lately: it must hold for a moment";
    assert_eq!(state(&decider, "wlan0"), (State::Settling, why.to_owned()));
    assert_eq!(drain(&mut decider, at(1_100)), (0, at(1_150)));
    assert_eq!(drain(&mut decider, at(1_150)).0, 1);
    assert_eq!(decider.wanted().ids, BTreeMap::from([(ip("10.2.0.1"), 1), (ip("10.3.0.1"), 2)]));
    assert_eq!(decider.wanted().returns[&ip("10.3.0.1")], 1);
}

#[test]
fn the_last_link_is_kept_and_made_anew_when_it_returns() {
    let mut decider = Decider::new(Policy::default());
    show(&mut decider, at(0), &two());
    show(&mut decider, at(100), &[up("eth0", 2, 1), down("wlan0", 3)]);
    let wanted = show(&mut decider, at(200), &[down("eth0", 2), down("wlan0", 3)]);
    assert_eq!((wanted.kept, wanted.ids.len()), (vec![ip("10.2.0.1")], 0));
    assert_eq!(state(&decider, "eth0").0, State::Kept);
    assert_eq!(state(&decider, "wlan0").0, State::Unusable);
    let wanted = show(&mut decider, at(20_000), &[up("eth0", 2, 1), down("wlan0", 3)]);
    assert!(wanted.kept.is_empty());
    assert_eq!(wanted.ids, BTreeMap::from([(ip("10.2.0.1"), 1)]), "the loss is old: at once");
    assert_eq!(wanted.returns, BTreeMap::from([(ip("10.2.0.1"), 1)]), "it is to be made anew");
    // Instead of it, another link may come: nothing is kept then.
    show(&mut decider, at(30_000), &[down("eth0", 2), down("wlan0", 3)]);
    let wanted = show(&mut decider, at(60_000), &[down("eth0", 2), up("wlan0", 3, 9)]);
    assert_eq!((wanted.kept.len(), wanted.ids), (0, BTreeMap::from([(ip("10.3.0.9"), 3)])));
}

#[test]
fn another_address_is_another_endpoint_and_the_other_stays() {
    let mut decider = Decider::new(Policy::default());
    show(&mut decider, at(0), &two());
    let wanted = show(&mut decider, at(500), &[up("eth0", 2, 1), up("wlan0", 3, 77)]);
    assert_eq!(wanted.ids, BTreeMap::from([(ip("10.2.0.1"), 1), (ip("10.3.0.77"), 3)]));
    assert!(wanted.without.is_empty(), "this is no loss");
    // The same name and address on an interface that was made anew is a loss.
    let anew = SurveyedLink { index: 9, ..up("wlan0", 3, 77) };
    let wanted = show(&mut decider, at(600), &[up("eth0", 2, 1), anew]);
    assert_eq!(wanted.without, ["wlan0"]);
}

#[test]
fn costs_and_backups_are_kept_in_order() {
    let policy = Policy::parse("via = [\"eth0\", \"wlan0:cost=3\", \"wwan0:backup\"]").unwrap();
    let mut decider = Decider::new(policy);
    let all = |eth, wlan| {
        let of = |is_up, name, index| if is_up { up(name, index, 1) } else { down(name, index) };
        [of(eth, "eth0", 2), of(wlan, "wlan0", 3), up("wwan0", 4, 1), up("usb0", 5, 1)]
    };
    let wanted = show(&mut decider, at(0), &all(true, true));
    assert_eq!(wanted.interfaces, ["eth0", "wlan0", "wwan0"]);
    assert_eq!(wanted.backup, ["wlan0", "wwan0"]);
    assert_eq!(state(&decider, "wlan0"), (State::Backup, "eth0 costs less than its 3".to_owned()));
    assert_eq!(state(&decider, "usb0").1, "it is not among the links that are named");
    let absent = show(&mut decider, at(0), &all(true, true)[1..]);
    assert_eq!(absent.backup, ["wwan0"]);
    assert_eq!(state(&decider, "eth0"), (State::Unusable, "it does not exist now".to_owned()));
    assert_eq!(show(&mut decider, at(1), &all(false, true)).backup, ["wwan0"]);
    assert!(show(&mut decider, at(2), &all(false, false)).backup.is_empty());
    assert_eq!(state(&decider, "wwan0"), (State::Active, "it works".to_owned()));
}

#[test]
fn a_radio_is_a_backup_before_it_fades_and_never_the_last() {
    let mut decider = Decider::new(Policy::default());
    show(&mut decider, at(0), &two());
    let reading = |dbm: i64| Reading { signal_dbm: Some(dbm as i8), ..Reading::default() };
    let mut backup_at = None;
    for step in 0..50_i64 {
        let now = at(step as u64 * 100);
        decider.handle(now, Input::Radio("wlan0", reading(-60 - step / 2)));
        drain(&mut decider, now);
        if decider.wanted().backup == ["wlan0"] {
            backup_at = backup_at.or(Some(-60 - step / 2));
        }
    }
    assert!(backup_at.is_some_and(|dbm| dbm > -78), "{backup_at:?}");
    assert!(state(&decider, "wlan0").1.starts_with("it fades: its signal is -8"), "{decider:?}");
    assert_eq!(decider.wanted().ids.len(), 2, "its subflow stays");
    let alone = show(&mut decider, at(5_000), &[down("eth0", 2), up("wlan0", 3, 1)]);
    assert!(alone.backup.is_empty());
    assert!(state(&decider, "wlan0").1.ends_with("but no other is better"));
}

#[test]
fn a_thousand_cycles_end_right_and_flapping_is_bounded() {
    let mut decider = Decider::new(Policy::default());
    show(&mut decider, at(0), &two());
    // It flaps ten times a second: it never holds for 400 ms, so it is not taken back.
    let (mut now, mut changes) = (1_000, 0);
    for cycle in 0..1_000 {
        for links in [[up("eth0", 2, 1), down("wlan0", 3)], two()] {
            decider.handle(at(now), Input::Network(&survey(&links)));
            changes += drain(&mut decider, at(now)).0;
            now += 50;
            changes += drain(&mut decider, at(now)).0;
        }
        assert!(cycle < 4 || decider.wanted().without == ["wlan0"], "{cycle}");
    }
    assert!(changes <= 10, "{changes}");
    assert!(drain(&mut decider, at(now + 400)).0 == 1 && decider.wanted().ids.len() == 2);
    // Slow cycles: each is taken back within 400 ms, always with the same number.
    for _ in 0..1_000 {
        show(&mut decider, at(now), &[up("eth0", 2, 1), down("wlan0", 3)]);
        show(&mut decider, at(now + 10), &two());
        drain(&mut decider, at(now + 410));
        assert_eq!(decider.wanted().ids[&ip("10.3.0.1")], 2);
        now += 1_000;
    }
    assert_eq!(decider.wanted().ids[&ip("10.2.0.1")], 1);
    assert_eq!(decider.wanted().returns[&ip("10.2.0.1")], 0, "the other was never touched");
}

#[test]
fn numbers_of_others_are_not_given() {
    let mut decider = Decider::new(Policy::default());
    let other = Endpoint { id: 1, flags: EndpointFlags::SIGNAL, ..Endpoint::subflow(ip("192.0.2.1"), None) };
    let seen = Survey { endpoints: vec![other], ..survey(&two()) };
    decider.handle(at(0), Input::Network(&seen));
    assert_eq!(decider.wanted().ids.values().copied().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_number_that_another_endpoint_has_taken_is_not_used_again() {
    let mut decider = Decider::new(Policy::default());
    show(&mut decider, at(0), &two());
    // Somebody has removed all endpoints, and made one that got the number of ours.
    let other = Endpoint { id: 2, ..Endpoint::subflow(ip("192.0.2.1"), None) };
    decider.handle(at(100), Input::Network(&Survey { endpoints: vec![other], ..survey(&two()) }));
    assert_eq!(decider.wanted().ids, BTreeMap::from([(ip("10.2.0.1"), 1), (ip("10.3.0.1"), 3)]));
}

#[test]
fn what_an_earlier_daemon_left_is_kept_while_no_uplink_works() {
    let mut decider = Decider::new(Policy::default());
    decider.take_over([ip("10.2.0.1")]);
    let none = [down("eth0", 2), down("wlan0", 3)];
    assert_eq!(show(&mut decider, at(0), &none).kept, [ip("10.2.0.1")]);
    let wanted = show(&mut decider, at(100), &[down("eth0", 2), up("wlan0", 3, 1)]);
    assert!(wanted.kept.is_empty());
    assert_eq!(show(&mut decider, at(200), &none).kept, [ip("10.3.0.1")]);
}

#[test]
fn eight_are_used_and_a_ninth_takes_the_place_of_one_that_is_lost() {
    let mut decider = Decider::new(Policy::default());
    let links: Vec<_> = (1..=9).map(|n| up(&format!("eth{n}"), n, 1)).collect();
    assert_eq!(show(&mut decider, at(0), &links).ids.len(), 8);
    assert_eq!(
        state(&decider, "eth9"),
        (State::Unusable, "the kernel uses eight uplinks at most".to_owned())
    );
    let wanted = show(&mut decider, at(1), &[&links[..2], &links[3..]].concat());
    assert_eq!(wanted.interfaces[2], "eth9");
    assert_eq!(wanted.ids.len(), 8);
    // Interfaces with ever new names leave nothing behind.
    for n in 10..1_000 {
        let wanted = show(&mut decider, at(u64::from(n)), &[up(&format!("eth{n}"), n, 1)]);
        assert!(wanted.interfaces.len() <= 8 && decider.links.len() <= 9);
    }
}

/// Returns a network of three interfaces, each in one of five conditions.
fn network(conditions: &[u8]) -> Vec<SurveyedLink> {
    let of = |(n, condition): (usize, &u8)| {
        let (name, index) = (format!("eth{n}"), n as u32 + 2);
        match condition {
            0 => None,
            1 => Some(down(&name, index)),
            2 => Some(up(&name, index, 7)),
            3 => Some(SurveyedLink { is_line: false, ..up(&name, index, 1) }),
            _ => Some(up(&name, index, 1)),
        }
    };
    conditions.iter().enumerate().filter_map(of).collect()
}

proptest! {
    /// The same network gives the same wishes, however it came about; and some promises hold at every step.
    #[test]
    fn the_end_depends_on_the_network_alone(
        steps in prop::collection::vec((prop::collection::vec(0..5_u8, 3), 0..300_u64), 0..60),
        end in prop::collection::vec(0..5_u8, 3),
        policy in 0..3_usize,
    ) {
        let backup = "via = [\"eth0\", \"eth1:backup\"]";
        let policy = ["", backup, "via = [\"eth2:cost=5\"]\nothers = true"][policy];
        let policy = Policy::parse(policy).unwrap();
        let (mut long, mut short) = (Decider::new(policy.clone()), Decider::new(policy));
        let mut now = 0;
        for (conditions, pause) in &steps {
            let wanted = show(&mut long, at(now), &network(conditions));
            prop_assert!(wanted.backup.iter().all(|name| !wanted.without.contains(name)));
            prop_assert_eq!(wanted.ids.is_empty(), wanted.without.len() == wanted.interfaces.len());
            let ids: BTreeSet<u8> = wanted.ids.values().copied().collect();
            prop_assert_eq!(ids.len(), wanted.ids.len(), "each number once");
            prop_assert!(wanted.kept.is_empty() || wanted.ids.is_empty());
            let active = long.report().iter().filter(|r| r.state == State::Active).count();
            prop_assert!(wanted.ids.is_empty() || active > 0, "one at least carries");
            now += pause;
        }
        let end = network(&end);
        show(&mut long, at(now), &end);
        show(&mut short, at(0), &end);
        drain(&mut long, at(now + 400));
        let bare = |decider: &Decider| {
            let wanted = decider.wanted().clone();
            (wanted.backup, wanted.ids.into_keys().collect::<Vec<_>>())
        };
        prop_assert_eq!(bare(&long), bare(&short));
        let states = |decider: &Decider| {
            let all = decider.report().into_iter().map(|report| (report.name, report.state));
            let is_here = |state: &State| matches!(state, State::Active | State::Backup | State::Settling);
            all.filter(|(_, state)| is_here(state)).collect::<Vec<_>>()
        };
        prop_assert_eq!(states(&long), states(&short));
    }
}

#[test]
fn what_a_killed_daemon_left_goes_on_with_its_numbers() {
    let mut decider = Decider::new(Policy::default());
    let left = Endpoint { id: 7, ..Endpoint::subflow(ip("10.3.0.1"), Some(3)) };
    let seen = Survey { endpoints: vec![left], ..survey(&two()) };
    decider.handle(at(0), Input::Network(&seen));
    drain(&mut decider, at(0));
    assert_eq!(decider.wanted().ids, BTreeMap::from([(ip("10.2.0.1"), 1), (ip("10.3.0.1"), 7)]));
    show(&mut decider, at(100), &[up("eth0", 2, 1), down("wlan0", 3)]);
    assert_eq!(show(&mut decider, at(20_000), &two()).ids[&ip("10.3.0.1")], 7);
    // Ever new addresses: numbers are unique, and few are remembered.
    for n in 0..2_000_u64 {
        let new =
            SurveyedAddress { ip: IpAddr::from([10, 9, (n / 250) as u8, (n % 250) as u8]), gateway: None };
        let links = [SurveyedLink { addresses: Ok(vec![new]), ..up("eth0", 2, 1) }, up("wlan0", 3, 1)];
        let wanted = show(&mut decider, at(30_000 + n * 20_000), &links);
        let ids: BTreeSet<u8> = wanted.ids.values().copied().collect();
        assert!(ids.len() == 2 && !ids.contains(&0), "{wanted:?}");
    }
}
