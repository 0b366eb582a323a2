//! The controllers take the same steps in the kernel as here: random steps of random subflows, one by one.
#![cfg(feature = "ebpf")]

use algo::control::Window;
use kernel::bpf_abi::{AnbStep, ENTRIES, Op, SSTHRESH_INFINITE};
use kernel::parity::Parity;
use sim::Rng;

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
        println!("skipped: parity with the kernel ({why})");
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
                member.srtt = algo::Span::from_nanos(magnitude(&mut rng, 34) * rng.below(8).min(1));
                member.slow_start = rng.below(4) == 0;
                member.loss_interval = magnitude(&mut rng, 20) * rng.below(4).min(1);
                member.reduction = Window::from_units(magnitude(&mut rng, 50));
                member.reduced_at =
                    algo::Time::from_nanos(here.now_ns.saturating_sub(magnitude(&mut rng, 34)));
                member.packets_between_losses = magnitude(&mut rng, 30);
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
