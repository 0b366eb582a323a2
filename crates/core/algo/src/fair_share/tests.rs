//! Shares in virtual time.

use std::string::{String, ToString as _};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::units::Span;

const fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

#[test]
fn a_flood_from_one_address_gives_its_own_places_up_and_keeps_nobody_out() {
    let mut share = FairShare::new(1_024);
    let mut now = Time::ZERO;
    let flood = |share: &mut FairShare<&str>, now| share.ask(now, "flood", Yields::First).unwrap();
    for _ in 0..1_024 {
        flood(&mut share, now);
    }
    let (client, gave_way) = share.ask(now, "client", Yields::First).unwrap();
    assert_eq!(gave_way, Some(Place(0)), "the one that is silent for longest");
    for _ in 0..100_000 {
        now += Span::from_micros(125);
        assert_ne!(flood(&mut share, now).1, Some(client));
    }
    assert_eq!((share.units_of(&"client"), share.used()), (1, 1_024));
    assert_eq!(share.counters(), Counters { gave_way: 100_001, refused: 0 });
}

#[test]
fn at_one_address_who_speaks_outlives_those_who_are_silent() {
    let mut share = FairShare::new(100);
    let (client, _) = share.ask(at(0), "nat", Yields::First).unwrap();
    for step in 1..1_000 {
        if step % 50 == 0 {
            share.heard(at(step), client);
        }
        assert_ne!(share.ask(at(step), "nat", Yields::First).unwrap().1, Some(client), "{step}");
    }
}

#[test]
fn from_many_addresses_the_longest_silent_goes_whichever_address_it_has() {
    let mut share = FairShare::new(3);
    let [b, a, c] = ["b", "a", "c"].map(|address| share.ask(at(1), address, Yields::First).unwrap().0);
    share.heard(at(2), b);
    assert_eq!(share.ask(at(3), "d", Yields::First), Ok((Place(3), Some(a))));
    assert_eq!(share.ask(at(3), "e", Yields::First), Ok((Place(4), Some(c))));
    assert_eq!(share.ask(at(3), "f", Yields::First), Ok((Place(5), Some(b))));
}

#[test]
fn one_who_has_all_that_is_used_gives_way_until_all_have_the_same() {
    let mut share = FairShare::new(10);
    let large: Vec<Place> =
        (0..10).map(|n| share.ask(at(n), "large", Yields::IfOverShare).unwrap().0).collect();
    share.heard(at(50), large[0]);
    // The oldest of the others gives way: the first place was heard of since.
    for oldest in &large[1..=5] {
        assert_eq!(share.ask(at(100), "small", Yields::IfOverShare).unwrap().1, Some(*oldest));
    }
    assert_eq!((share.units_of(&"large"), share.units_of(&"small")), (5, 5));
    assert_eq!(share.ask(at(100), "small", Yields::IfOverShare), Err(Full), "nor its own: they are used");
    assert_eq!(share.ask(at(100), "large", Yields::IfOverShare), Err(Full));
    assert_eq!(share.counters().refused, 2);
}

#[test]
fn what_is_less_used_goes_first_and_not_that_of_one_who_has_less() {
    let mut share = FairShare::new(4);
    let ask = |share: &mut FairShare<_>, who, yields| share.ask(at(0), who, yields).unwrap();
    let _used = ask(&mut share, "large", Yields::IfOverShare);
    let ports = [(), ()].map(|()| ask(&mut share, "large", Yields::Next).0);
    let idle = ask(&mut share, "small", Yields::First).0;
    assert_eq!(ask(&mut share, "new", Yields::IfOverShare).1, Some(idle), "it has more than none");
    assert_eq!(ask(&mut share, "large", Yields::Next).1, Some(ports[0]), "its own, not that of `new`");
    share.set_yields(ports[1], Yields::Never);
    assert_eq!(ask(&mut share, "other", Yields::Never).1, Some(Place(5)), "`large` has the most");
    share.release(ports[1]);
    share.release(ports[1]);
    assert_eq!(ask(&mut share, "other", Yields::First).1, None, "it is free");
}

#[test]
fn of_what_cannot_be_taken_back_there_is_always_one_for_who_comes_next() {
    let mut share = FairShare::new(64);
    let mut take_all = |who: u32| (0..).take_while(|_| share.ask(at(0), who, Yields::Never).is_ok()).count();
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(&mut take_all), [32, 16, 8, 4, 2, 1, 1]);
    assert_eq!(share.used(), 64);
}

#[test]
fn of_memory_the_one_who_has_most_gives_up_what_is_silent() {
    let mut share = FairShare::new(100);
    let ask = |share: &mut FairShare<_>, who| share.ask(at(0), who, Yields::Next).unwrap().0;
    let (busy, stuck, other) = (ask(&mut share, "a"), ask(&mut share, "a"), ask(&mut share, "b"));
    assert_eq!([busy, stuck, other].map(|place| share.resize(place, 30)), [None; 3]);
    share.heard(at(1), busy);
    assert_eq!(share.resize(other, 50), Some(stuck));
    assert_eq!((share.used(), share.resize(stuck, 15)), (80, None), "what it could not free");
    assert_eq!(share.resize(other, 90), Some(other), "now it has most itself");
}

#[test]
fn turns_go_round_and_one_who_may_not_is_passed_over() {
    let mut turns = Turns::new(3);
    for item in 0..3 {
        turns.push("a", item).unwrap();
    }
    assert_eq!(turns.push("a", 3), Err(3));
    turns.push("b", 10).unwrap();
    turns.push("c", 20).unwrap();
    assert_eq!(turns.next(|_| true), Some(("a", 0)));
    assert_eq!(turns.next(|_| true), Some(("b", 10)));
    assert_eq!(turns.next(|who| *who != "c"), Some(("a", 1)));
    assert_eq!(turns.of(&"a").map(|item| *item).collect::<Vec<_>>(), [2]);
    assert_eq!(turns.remove(&"a", |item| *item == 2), Some(2));
    assert_eq!(turns.remove(&"a", |_| true), None);
    assert_eq!((turns.next(|_| true), turns.is_empty()), (Some(("c", 20)), true));
    assert_eq!(turns.next(|_| true), None);
}

proptest! {
    /// Whatever happens, the sums are those of the places, no more units are used than there are, and the
    /// holder with the least is refused only if every other has as little.
    #[test]
    fn sums_are_right(steps in prop::collection::vec((0..5_u8, 0..6_u8, 0..8_usize, 0..3_u8), 0..300)) {
        let (mut share, mut held, capacity) = (FairShare::new(8), Vec::<(String, Place)>::new(), 8);
        for (now, (what, who, which, yields)) in steps.into_iter().enumerate() {
            let now = at(now as u64);
            let yields = [Yields::First, Yields::Next, Yields::IfOverShare][usize::from(yields)];
            let which = held.get(which % held.len().max(1)).map(|(_, place)| *place);
            match (what, which) {
                (0..3, _) => {
                    let holder = std::format!("{who}");
                    let its = share.units_of(&holder);
                    match share.ask(now, holder.clone(), yields) {
                        Ok((place, gave_way)) => {
                            held.retain(|(_, other)| Some(*other) != gave_way);
                            held.push((holder, place));
                        }
                        Err(Full) => {
                            for (other, _) in &held {
                                prop_assert!(share.units_of(other) <= its + 1);
                            }
                        }
                    }
                }
                (3, Some(place)) => share.heard(now, place),
                (_, Some(place)) => {
                    share.release(place);
                    held.retain(|(_, other)| *other != place);
                }
                (_, None) => {}
            }
            prop_assert!(share.used() <= capacity && share.used() == held.len() as u64);
            for (holder, _) in &held {
                let its = held.iter().filter(|(other, _)| other == holder).count() as u64;
                prop_assert_eq!(share.units_of(holder), its);
            }
        }
    }
}

#[test]
fn a_host_is_an_address_or_a_network_of_64_bits() {
    let host = |text: &str| host_of(text.parse().unwrap()).to_string();
    assert_eq!(host("192.0.2.7"), "192.0.2.7");
    assert_eq!(host("::ffff:192.0.2.7"), "192.0.2.7");
    assert_eq!(host("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(host("::1"), "::");
}
