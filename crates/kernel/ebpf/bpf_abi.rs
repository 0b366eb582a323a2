//! The interface between C and the controllers: one step of one subflow, as plain memory.
//!
//! This file is compiled twice: into the eBPF programs (`lib.rs`), and into this crate for the host, so that
//! a test can hold the one to the other. A step is one struct that C and Rust both know by layout
//! (`controllers.bpf.c`): in the kernel it lies in the socket's storage, so nothing is copied.

use algo::control::{
    Ack, Balia, ClassicCc, CongestionAvoidance, CongestionCause, CongestionEvent, Control, Coupled, Ewtcp,
    FriendlySlowStart, Group, Lia, Nmcc, NmccDecrease, Olia, Reno, SlowStart, SubflowStats, Wvegas,
};
use algo::{Span, Time};

/// Subflows that a connection has places for: what the kernel allows a connection (`MPTCP_SUBFLOWS_MAX`).
pub const SLOTS: usize = 8;
/// Words of a controller's state: the 104 bytes that `algo` promises to keep to.
pub const STATE_WORDS: usize = 13;
/// What C has for an ssthresh that is arbitrarily high: `TCP_INFINITE_SSTHRESH`, linux/tcp.h.
pub const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// One step: the controller's state, what happened, and what comes of it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AnbStep {
    /// A `ClassicCc<A>`.
    pub state: [u64; STATE_WORDS],
    /// When, smoothed RTT, latest RTT, smallest RTT; nanoseconds.
    pub now_ns: u64,
    #[expect(missing_docs, reason = "with the one before")]
    pub srtt_ns: u64,
    #[expect(missing_docs, reason = "with the one before")]
    pub rtt_ns: u64,
    #[expect(missing_docs, reason = "with the one before")]
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
    /// The window and ssthresh that the kernel has set itself, packets.
    pub cwnd: u32,
    #[expect(missing_docs, reason = "with the one before")]
    pub ssthresh: u32,
    /// How many members count, and which of them is this subflow. With one or none it is alone.
    pub n: u32,
    #[expect(missing_docs, reason = "with the one before")]
    pub me: u32,
    /// Whether it is in slow start after the step.
    pub slow_start: u32,
    /// What the subflows have published; all zero where there is none.
    pub members: [SubflowStats; SLOTS],
    /// What this subflow publishes after the step.
    pub mine: SubflowStats,
}

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
    finish::<A>(step, algo::control::INITIAL_WINDOW.floor())
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
        controller.on_ack(&ack, &Group { members: &step.members, me: step.me as usize }).cwnd
    } else {
        controller.on_ack(&ack, &Group { members: &[], me: 0 }).cwnd
    };
    finish::<A>(step, cwnd)
}

#[inline(always)]
fn on_cut<A: CongestionAvoidance>(step: &mut AnbStep) -> u32 {
    let cause = match step.cause {
        1 => CongestionCause::Timeout,
        2 => CongestionCause::EcnCe,
        _ => CongestionCause::Loss,
    };
    let event =
        CongestionEvent { now: Time::from_nanos(step.now_ns), cause, srtt: Span::from_nanos(step.srtt_ns) };
    let controller = controller::<A>(&mut step.state);
    let cwnd = if step.n > 1 {
        controller.on_congestion(&event, &Group { members: &step.members, me: step.me as usize }).cwnd
    } else {
        controller.on_congestion(&event, &Group { members: &[], me: 0 }).cwnd
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

/// A step of a controller on the host.
pub type Step = extern "C" fn(*mut AnbStep) -> u32;

/// The steps of one controller. Each returns the window in packets, or 0 for a null pointer.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Its name in `algo`'s table.
    pub name: &'static str,
    /// A new subflow.
    pub init: Step,
    /// Packets arrived.
    pub ack: Step,
    /// A congestion event.
    pub cut: Step,
    /// The kernel has set the window itself.
    pub set_window: Step,
    /// Whether the controllers of two steps are the same; their padding may differ.
    pub same: fn(AnbStep, AnbStep) -> bool,
}

macro_rules! controllers {
    ($(
        $name:literal $rule:ty = $make:expr, $start:expr =>
            $init:ident $ack:ident $cut:ident $set_window:ident;
    )+) => {
        $(
            controllers!(fn $init, step, on_init::<$rule>(step, $make, $start));
            controllers!(fn $ack, step, on_ack::<$rule>(step));
            controllers!(fn $cut, step, on_cut::<$rule>(step));
            controllers!(fn $set_window, step, on_set_window::<$rule>(step));
        )+

        /// Every controller that runs in the kernel.
        #[cfg(not(target_arch = "bpf"))]
        pub const CONTROLLERS: &[Steps] =
            &[$(Steps {
                name: $name,
                init: $init,
                ack: $ack,
                cut: $cut,
                set_window: $set_window,
                same: |mut a, mut b| controller::<$rule>(&mut a.state) == controller::<$rule>(&mut b.state),
            },)+];
    };
    (fn $name:ident, $step:ident, $body:expr) => {
        #[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
        extern "C" fn $name(step: *mut AnbStep) -> u32 {
            // SAFETY: null, or a step that the caller alone uses: in the kernel under the lock of its socket.
            let Some($step) = (unsafe { step.as_mut() }) else { return 0 };
            $body
        }
    };
}

// As in `algo`'s table, which a test compares; the names of functions are those of `controllers.bpf.c`.
controllers! {
    "nmcc" Nmcc = Nmcc::new(NmccDecrease::Balanced), SlowStart::Friendly(FriendlySlowStart::new())
        => nmcc_init nmcc_ack nmcc_cut nmcc_set_window;
    "nmcc-half" Nmcc = Nmcc::new(NmccDecrease::Half), SlowStart::Friendly(FriendlySlowStart::new())
        => nmcc_half_init nmcc_half_ack nmcc_half_cut nmcc_half_set_window;
    "lia" Lia = Lia, SlowStart::Standard => lia_init lia_ack lia_cut lia_set_window;
    "olia" Olia = Olia::new(), SlowStart::Standard => olia_init olia_ack olia_cut olia_set_window;
    "balia" Balia = Balia, SlowStart::Standard => balia_init balia_ack balia_cut balia_set_window;
    "wvegas" Wvegas = Wvegas::new(), SlowStart::Standard
        => wvegas_init wvegas_ack wvegas_cut wvegas_set_window;
    "ewtcp" Ewtcp = Ewtcp, SlowStart::Standard
        => ewtcp_init ewtcp_ack ewtcp_cut ewtcp_set_window;
    "coupled" Coupled = Coupled, SlowStart::Standard
        => coupled_init coupled_ack coupled_cut coupled_set_window;
    "reno" Reno = Reno, SlowStart::Standard => reno_init reno_ack reno_cut reno_set_window;
}
