//! The interface between C and the controllers: one step of one subflow, as plain memory, and one function a
//! controller that takes it. Which controllers there are is `algo`'s table
//! (`anabranch_algo::algorithm_table`).
//!
//! This file is compiled three times: into the eBPF programs (`lib.rs`); into this crate for the host, so
//! that a test can hold the one to the other; and into `build.rs`, which writes from it what C must know:
//! `bpf_abi.h`, with the numbers, the list of controllers, and the layouts that the compiler compares with
//! C's. A step is one struct: in the kernel it lies in the socket's storage, so nothing is copied.

use anabranch_algo::control::*;
use anabranch_algo::{Span, Time};

/// Subflows that a connection has places for: what the kernel allows a connection (`MPTCP_SUBFLOWS_MAX`).
pub const SLOTS: usize = 8;
/// Words of a controller's state.
pub const STATE_WORDS: usize = STATE_BYTES_MAX / 8;
/// What C has for an ssthresh that is arbitrarily high: `TCP_INFINITE_SSTHRESH`, linux/tcp.h.
pub const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new subflow.
    Init,
    /// Packets arrived.
    Ack,
    /// A congestion event.
    Congestion,
    /// The kernel has set the window itself.
    SetWindow,
}

/// One step: the controller's state, what happened, and what comes of it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AnbStep {
    /// A `ClassicCc<A>`.
    pub state: [u64; STATE_WORDS],
    /// As in [`Ack`] or [`CongestionEvent`].
    pub now_ns: u64,
    /// As in [`Ack`] or [`CongestionEvent`].
    pub srtt_ns: u64,
    /// As in [`Ack`].
    pub rtt_ns: u64,
    /// As in [`Ack`].
    pub min_rtt_ns: u64,
    /// As in [`Ack`].
    pub acked: u32,
    /// As in [`Ack`].
    pub round: u32,
    /// As in [`Ack`]: zero for no.
    pub cwnd_limited: u32,
    /// As in [`Ack`]: zero for no.
    pub recovering: u32,
    /// Of a congestion event: 0 a loss, 1 a timeout, 2 a mark.
    pub cause: u32,
    /// The window that the kernel has set itself, packets.
    pub cwnd: u32,
    /// The ssthresh that goes with it, or [`SSTHRESH_INFINITE`].
    pub ssthresh: u32,
    /// How many members count. With one or none this subflow is alone.
    pub n: u32,
    /// Which of them is this subflow.
    pub me: u32,
    /// Whether it is in slow start after the step.
    pub slow_start: u32,
    /// What the subflows have published; all zero where there is none.
    pub members: [SubflowStats; SLOTS],
    /// What this subflow publishes after the step.
    pub mine: SubflowStats,
}

/// A subflow's place among those of its connection, in the map `connections`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AnbSlot {
    /// Whose it is, by the address of the socket; zero: nobody's.
    pub owner: u64,
    /// The socket's cookie (`SO_COOKIE`).
    pub cookie: u64,
    /// When it last published; nanoseconds.
    pub at_ns: u64,
    /// Its group.
    pub group: u32,
    /// The connection's local token.
    pub token: u32,
    /// What it has published.
    pub stats: SubflowStats,
}

/// A rule of `kernel group`, a key of the map `groups`, whose value is the group.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AnbRule {
    /// The cookie of the network namespace.
    pub netns: u64,
    /// What it is about: [`RULE_ADDRESS`], [`RULE_INTERFACE`], [`RULE_CONNECTION`], [`RULE_ALL`].
    pub kind: u32,
    /// The address, in network byte order; or the interface's index or the connection's token, then zeros.
    pub selector: [u32; 4],
    /// Zero.
    pub unused: u32,
}

/// [`AnbRule::kind`]: a local address.
pub const RULE_ADDRESS: u32 = 1;
/// [`AnbRule::kind`]: an interface.
pub const RULE_INTERFACE: u32 = 2;
/// [`AnbRule::kind`]: a connection.
pub const RULE_CONNECTION: u32 = 3;
/// [`AnbRule::kind`]: all connections of the namespace, of TCP too, as the subflows of one connection, with
/// those of other namespaces whose rule has the same value.
pub const RULE_ALL: u32 = 4;
/// The group of a connection whose subflows are each on their own: the group is the slot.
pub const GROUP_APART: u32 = u32::MAX;

/// A controller's state in a step.
#[inline(always)]
fn controller<A>(state: &mut [u64; STATE_WORDS]) -> &mut ClassicCc<A> {
    const {
        assert!(size_of::<ClassicCc<A>>() <= size_of::<[u64; STATE_WORDS]>());
        assert!(align_of::<ClassicCc<A>>() <= 8);
    }
    // SAFETY: large enough and aligned, as just asserted; `init` of the same rule wrote a `ClassicCc<A>`
    // there, and nobody else writes to it.
    unsafe { &mut *state.as_mut_ptr().cast() }
}

/// Ends a step: what the siblings and C are told.
#[inline(always)]
fn finish<A: CongestionAvoidance>(step: &mut AnbStep, cwnd: u32) -> u32 {
    let srtt = Span::from_nanos(step.srtt_ns);
    step.mine = controller::<A>(&mut step.state).stats(srtt);
    step.slow_start = step.mine.slow_start as u32;
    cwnd
}

#[inline(always)]
fn on_init<A: CongestionAvoidance>(step: &mut AnbStep, avoidance: A, slow_start: SlowStart) -> u32 {
    step.state = [0; STATE_WORDS];
    *controller::<A>(&mut step.state) = ClassicCc::new(avoidance, slow_start);
    finish::<A>(step, INITIAL_WINDOW.floor())
}

#[inline(always)]
fn on_ack<A: CongestionAvoidance>(step: &mut AnbStep) -> u32 {
    let ack = Ack {
        now: Time::from_nanos(step.now_ns),
        acked: step.acked,
        round: step.round,
        srtt: Span::from_nanos(step.srtt_ns),
        rtt: Span::from_nanos(step.rtt_ns),
        min_rtt: Span::from_nanos(step.min_rtt_ns),
        cwnd_limited: step.cwnd_limited != 0,
        recovering: step.recovering != 0,
    };
    let controller = controller::<A>(&mut step.state);
    // All places, used or not: a loop of constant length is cheap to verify.
    let cwnd = if step.n > 1 {
        controller.on_ack(&ack, &Group { members: &step.members, me: step.me as usize })
    } else {
        controller.on_ack(&ack, &Group { members: &[], me: 0 })
    };
    finish::<A>(step, cwnd)
}

#[inline(always)]
fn on_congestion<A: CongestionAvoidance>(step: &mut AnbStep) -> u32 {
    let cause = match step.cause {
        1 => CongestionCause::Timeout,
        2 => CongestionCause::EcnCe,
        _ => CongestionCause::Loss,
    };
    let event =
        CongestionEvent { now: Time::from_nanos(step.now_ns), cause, srtt: Span::from_nanos(step.srtt_ns) };
    let controller = controller::<A>(&mut step.state);
    let cwnd = if step.n > 1 {
        controller.on_congestion(&event, &Group { members: &step.members, me: step.me as usize })
    } else {
        controller.on_congestion(&event, &Group { members: &[], me: 0 })
    };
    finish::<A>(step, cwnd)
}

#[inline(always)]
fn on_set_window<A: CongestionAvoidance>(step: &mut AnbStep) -> u32 {
    let ssthresh = if step.ssthresh >= SSTHRESH_INFINITE { None } else { Some(step.ssthresh) };
    controller::<A>(&mut step.state).set_window(step.cwnd, ssthresh);
    let cwnd = step.cwnd;
    finish::<A>(step, cwnd)
}

/// A controller for the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name in `algo`'s table.
    pub name: &'static str,
    /// What the kernel calls it, which is also the name of its function here.
    pub linux: &'static str,
    /// Takes a step; the second argument is an [`Op`]. Returns the window in packets; 0 for a null pointer.
    pub step: extern "C" fn(*mut AnbStep, u32) -> u32,
    /// Whether the controllers of two steps are the same; their padding may differ.
    pub same: fn(AnbStep, AnbStep) -> bool,
}

macro_rules! entries {
    ($($file:ident::$rule:ident { $(
        $name:literal + $start:ident = $make:expr, $title:literal, $source:literal $(, linux = $linux:ident)?;
    )+ })+) => {
        $($($(
            #[inline(always)]
            pub(crate) extern "C" fn $linux(step: *mut AnbStep, op: u32) -> u32 {
                // SAFETY: null, or a step that the caller alone uses: in the kernel under the lock of its
                // socket.
                let Some(step) = (unsafe { step.as_mut() }) else { return 0 };
                if op == Op::Init as u32 {
                    on_init::<$rule>(step, $make, SlowStart::$start())
                } else if op == Op::Ack as u32 {
                    on_ack::<$rule>(step)
                } else if op == Op::Congestion as u32 {
                    on_congestion::<$rule>(step)
                } else {
                    on_set_window::<$rule>(step)
                }
            }
        )?)+)+

        /// Every controller that runs in the kernel.
        pub const ENTRIES: &[Entry] = &[$($($(Entry {
            name: $name,
            linux: stringify!($linux),
            step: $linux,
            same: |mut a, mut b| controller::<$rule>(&mut a.state) == controller::<$rule>(&mut b.state),
        },)?)+)+];
    };
}

anabranch_algo::algorithm_table!(entries);
