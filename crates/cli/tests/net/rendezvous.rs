//! Tests of `anabranch rendezvous --state` as a process: killed, started again, beside another one, and on a
//! full disk.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Read as _;
use std::time::Duration;

use crate::common::disk::Tmpfs;
use crate::rendezvous_bed::{Bed, now};
use anabranch_algo::Span;
use anabranch_overlay::message::{Body, refusal};
use anabranch_overlay::publication::Rejection;

#[test]
fn what_was_published_and_withdrawn_survives_a_kill() {
    let mut bed = Bed::new(1);
    let state = bed.path("state");
    let (mut running, told) = bed.start(&state);
    assert!(told.contains("which has none yet"), "{told}");
    let at = now();
    let all: Vec<_> = (0..100).map(|name| bed.signed(name, at, 600)).collect();
    for signed in &all {
        assert_eq!(bed.publish(signed.clone()), Body::Published);
    }
    let later = at + Span::from_millis(5);
    let (withdrawal, renewed) = (bed.signed(0, later, 0), bed.signed(1, later, 60));
    assert_eq!(bed.publish(withdrawal), Body::Published);
    assert_eq!(bed.publish(renewed), Body::Published);
    running.killed();

    let (running, told) = bed.start(&state);
    assert!(told.starts_with("took back 99 publications from "), "{told}");
    assert!(told.ends_with("remembers 1 that ended; 0 are too old"), "{told}");
    let found: Vec<u32> = (0..100).filter(|name| bed.is_found(*name)).collect();
    assert_eq!(found, (1..100).collect::<Vec<_>>());
    let replayed = Body::Refused { reason: refusal::of(Rejection::Replayed) };
    assert_eq!(bed.publish(all[0].clone()), replayed, "it was withdrawn");
    assert_eq!(bed.publish(all[1].clone()), replayed, "it was followed by another");
    let again = bed.signed(0, at + Span::from_millis(9), 60);
    assert_eq!(bed.publish(again), Body::Published);
    assert!(bed.is_found(0));

    let summary = running.ended();
    let expected = [("taken_back", 99), ("remembered", 1), ("expired", 0), ("foreign", 0), ("commits", 1)];
    let documented = include_str!("../../../../docs/json.md");
    for (field, value) in expected {
        assert_eq!(summary["state"][field], value, "{summary}");
        assert!(documented.contains(&format!("`{field}`")), "docs/json.md: no word about {field}");
    }
}

#[test]
fn whatever_was_answered_is_there_however_often_it_is_killed() {
    let mut bed = Bed::new(2);
    let state = bed.path("state");
    let mut answered: Vec<u32> = Vec::new();
    for round in 0..6_u32 {
        let (mut running, _) = bed.start(&state);
        let at = now();
        let names: Vec<u32> = (round * 200..(round + 1) * 200).collect();
        let first = bed.calls + 1;
        for name in &names {
            let signed = bed.signed(*name, at, 600);
            bed.send(Body::Publish(signed));
        }
        // The rendezvous is killed while it works on these.
        for _ in 0..=round * 35 {
            let answer = bed.receive().expect("an answer");
            assert_eq!(answer.body, Body::Published);
            answered.push(names[(answer.call - first) as usize]);
        }
        running.killed();
        bed.socket.set_nonblocking(true).expect("set");
        while let Some(answer) = bed.receive() {
            answered.push(names[(answer.call - first) as usize]);
        }
        // An error is pending on the socket, because the killed process refused packets; the next send would
        // get it.
        let _ = bed.socket.take_error();
        bed.socket.set_nonblocking(false).expect("set");
    }
    let (_running, _) = bed.start(&state);
    let missing: Vec<u32> = answered.iter().copied().filter(|name| !bed.is_found(*name)).collect();
    assert!(answered.len() > 200 && missing.is_empty(), "of {}: {missing:?}", answered.len());
}

#[test]
fn two_cannot_have_one_file() {
    let bed = Bed::new(3);
    let text = fs::read_to_string(bed.path("net.toml")).expect("a file");
    fs::write(bed.path("other.toml"), text.replace("[topology]", "port = 7801\n[topology]"))
        .expect("written");
    let state = bed.path("state");
    let (_running, _) = bed.start(&state);
    let output = bed.command("other.toml", &state).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.contains("is in use by another rendezvous: end that one, or name another file with --state")
    );
}

#[test]
fn another_file_is_refused_before_anything_is_said() {
    let bed = Bed::new(4);
    fs::write(bed.path("letter"), "not to be lost").expect("written");
    let output = bed.command("net.toml", bed.path("letter")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("name another file with --state"), "{said}");
    assert_eq!(fs::read_to_string(bed.path("letter")).expect("a file"), "not to be lost");
}

#[test]
fn a_full_disk_ends_it_with_a_word_and_loses_nothing_that_was_answered() {
    let mut bed = Bed::new(5);
    let place = bed.path("disk");
    fs::create_dir(&place).expect("a directory");
    let Some(disk) = Tmpfs::mount(&place, "1m") else { return };
    let state = place.join("state");
    let (mut running, _) = bed.start(&state);
    bed.socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    let at = now();
    let mut answered = Vec::new();
    for name in 0..50_000 {
        let signed = bed.signed(name, at, 600);
        bed.send(Body::Publish(signed));
        match bed.receive() {
            Some(answer) => assert_eq!(answer.body, Body::Published),
            None => break,
        }
        answered.push(name);
    }
    assert!((50..49_999).contains(&answered.len()), "{}", answered.len());
    let summary = running.summary();
    assert_eq!(summary["exit"], 6, "{summary}");
    let mut said = String::new();
    running.child.stderr.take().expect("its errors").read_to_string(&mut said).expect("UTF-8");
    assert!(said.contains("the disk is full: make room and start again"), "{said}");

    disk.resize("40m");
    bed.socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let _ = bed.socket.take_error();
    let (_running, told) = bed.start(&state);
    let missing: Vec<u32> = answered.iter().copied().filter(|name| !bed.is_found(*name)).collect();
    assert!(missing.is_empty(), "{told}: {missing:?}");
}
