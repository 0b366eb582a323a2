//! The controllers take the same steps in the kernel as here: random steps of random subflows, one by one.
#![cfg(feature = "ebpf")]

use anabranch_algo::control::{
    Ack, Algorithm, CongestionCause, CongestionEvent, Control as _, Group, Window,
};
use anabranch_algo::{Span, Time};
use anabranch_kernel::bpf_abi::{AnbStep, ENTRIES, Op, SSTHRESH_INFINITE};
use anabranch_kernel::parity::Parity;
use anabranch_sim::Rng;

/// 1 to 2^bits, all magnitudes alike.
fn magnitude(rng: &mut Rng, bits: u64) -> u64 {
    let shift = rng.below(bits);
    1 + (rng.bits() & ((2 << shift) - 1)) % (1 << bits)
}

/// Steps for each controller: ANABRANCH_STEPS, or this.
const STEPS: u64 = 100_000;

fn steps() -> u64 {
    std::env::var("ANABRANCH_STEPS").ok().and_then(|n| n.parse().ok()).unwrap_or(STEPS)
}

/// What is in the way of this test, if anything.
fn obstacle() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("not root");
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some("the kernel has no BTF");
    }
    None
}

#[test]
fn the_kernel_takes_the_same_steps() {
    if let Some(why) = obstacle() {
        anabranch_net::testing::skip(format!("parity with the kernel ({why})"));
        return;
    }
    for (no, entry) in ENTRIES.iter().enumerate() {
        let mut parity = Parity::new(entry.name).expect("the kernel takes the programs");
        let mut rng = Rng::new(no as u64);
        let (mut here, mut moved, mut cut) = (AnbStep::default(), 0, 0);
        // Both begin from all zeros, padding included.
        let mut there = here;
        for number in 0..steps() {
            let op = match rng.below(100) {
                _ if number % 1_000 == 0 => Op::Init,
                0..=84 => Op::Ack,
                85..=95 => Op::Congestion,
                _ => Op::SetWindow,
            };
            // Siblings come and go, now and then; some have no round-trip time.
            if rng.below(10) == 0 {
                let i = rng.below(8) as usize;
                let mut member = here.mine;
                member.cwnd = Window::from_units((magnitude(&mut rng, 20) << 40) | rng.below(1 << 40));
                member.srtt = Span::from_nanos(magnitude(&mut rng, 34) * rng.below(8).min(1));
                member.slow_start = rng.below(4) == 0;
                member.loss_interval = magnitude(&mut rng, 20) * rng.below(4).min(1);
                member.phase_at = Time::from_nanos(here.now_ns.saturating_sub(magnitude(&mut rng, 34)));
                member.packets_between_losses = magnitude(&mut rng, 30);
                member.peak = Window::from_units(magnitude(&mut rng, 60));
                here.members[i] = member;
                here.me = rng.below(8) as u32;
                here.n = rng.below(9) as u32;
            }
            let mine = here.mine;
            here.members[here.me as usize] = mine;
            here.now_ns += magnitude(&mut rng, 30);
            if rng.below(20) == 0 {
                here.srtt_ns = magnitude(&mut rng, 34);
                here.min_rtt_ns = here.srtt_ns / (1 + rng.below(3));
            }
            here.rtt_ns = here.srtt_ns * rng.below(4) / 2;
            let bits = if rng.below(100) == 0 { 31 } else { 6 };
            here.acked = magnitude(&mut rng, bits) as u32;
            here.round += rng.below(2) as u32;
            here.cwnd_limited = u32::from(rng.below(8) > 0);
            here.recovering = u32::from(rng.below(10) == 0);
            here.cause = rng.below(3) as u32;
            here.cwnd = magnitude(&mut rng, 16) as u32;
            here.ssthresh =
                if rng.below(4) == 0 { SSTHRESH_INFINITE } else { magnitude(&mut rng, 16) as u32 };
            let before = here;
            there.clone_from(&here);
            let want = (entry.step)(&mut here, op as u32);
            let got = parity.step(&mut there, op).expect("a step");
            let name = entry.name;
            assert_eq!(got, want, "{name}, step {number}, op {op:?}: {before:?}");
            assert!(
                (entry.same)(there, here),
                "{name}, step {number}, op {op:?}: {before:?} {there:?} {here:?}"
            );
            assert_eq!((there.mine, there.slow_start), (here.mine, here.slow_start), "{name}, step {number}");
            cut += u64::from(op == Op::Congestion);
            moved += u64::from(op == Op::SetWindow);
        }
        assert!(cut > steps() / 20 && moved > steps() / 50);
        println!("{}: {} steps, none different", entry.name, steps());
    }
}

/// What `load cubic-coupled --default` makes of plain TCP, and of a connection with one subflow.
#[test]
fn a_socket_without_siblings_is_cubic() {
    if let Some(why) = obstacle() {
        anabranch_net::testing::skip(format!("CUBIC in the kernel ({why})"));
        return;
    }
    let mut parity = Parity::new("cubic-coupled").expect("the kernel takes the programs");
    let mut rng = Rng::new(1);
    let (mut step, mut cubic) = (AnbStep::default(), Algorithm::by_name("cubic").expect("in the table"));
    let alone = Group { members: &[], me: 0 };
    for number in 0..steps() {
        step.now_ns += magnitude(&mut rng, 26);
        if rng.below(20) == 0 {
            step.srtt_ns = magnitude(&mut rng, 28);
        }
        step.round += rng.below(2) as u32;
        (step.acked, step.rtt_ns, step.min_rtt_ns) = (1 + rng.below(10) as u32, step.srtt_ns, step.srtt_ns);
        step.cwnd_limited = u32::from(rng.below(20) > 0);
        step.recovering = u32::from(rng.below(20) == 0);
        // None that counts, or itself alone, as in a connection with one subflow.
        step.n = rng.below(2) as u32;
        step.cause = rng.below(3) as u32;
        step.cwnd = magnitude(&mut rng, 10) as u32;
        step.ssthresh = if rng.below(2) == 0 { SSTHRESH_INFINITE } else { 2 + rng.below(1_000) as u32 };
        let (now, srtt) = (Time::from_nanos(step.now_ns), Span::from_nanos(step.srtt_ns));
        let (op, want) = match rng.below(1_000) {
            _ if number % 10_000 == 0 => {
                cubic = Algorithm::by_name("cubic").expect("in the table");
                (Op::Init, cubic.stats(srtt).cwnd.floor())
            }
            0..=4 => {
                let cause = [CongestionCause::Loss, CongestionCause::Timeout, CongestionCause::EcnCe];
                let cause = cause[step.cause as usize];
                (Op::Congestion, cubic.on_congestion(&CongestionEvent { now, cause, srtt }, &alone))
            }
            5 => {
                let ssthresh = Some(step.ssthresh).filter(|packets| *packets < SSTHRESH_INFINITE);
                cubic.set_window(step.cwnd, ssthresh);
                (Op::SetWindow, step.cwnd)
            }
            _ => {
                let ack = Ack {
                    now,
                    acked: step.acked,
                    round: step.round,
                    srtt,
                    rtt: srtt,
                    min_rtt: srtt,
                    cwnd_limited: step.cwnd_limited != 0,
                    recovering: step.recovering != 0,
                };
                (Op::Ack, cubic.on_ack(&ack, &alone))
            }
        };
        assert_eq!(parity.step(&mut step, op).expect("a step"), want, "step {number}, {op:?}");
        assert_eq!(step.mine.cwnd, cubic.stats(srtt).cwnd, "step {number}, {op:?}");
    }
    println!("cubic-coupled alone: {} steps as CUBIC, none different", steps());
}
