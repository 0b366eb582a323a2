//! The bursts, their losses and the policies: what is simulated.

use anabranch_mptcp::{TAIL_LOSS_POLICIES, TailLoss};

/// Simulations of a burst: one with each policy, and one without a loss.
pub const RUNS: usize = TAIL_LOSS_POLICIES.len() + 1;
/// Segments of a burst.
pub const SEGMENTS: [u32; 5] = [2, 5, 10, 20, 50];
/// Round-trip times of the primary and the alternate path, ms.
pub const RTTS_MS: [(u64, u64); 4] = [(25, 25), (25, 65), (65, 25), (10, 100)];

/// The lost segments of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// None: the control that shows how long a burst takes at least.
    Nothing,
    /// The last ones, so many.
    Last(u32),
    /// All.
    All,
}

impl Lost {
    /// All kinds of loss but none, in the order of tables.
    pub const EACH: [Self; 4] = [Self::Last(1), Self::Last(2), Self::Last(3), Self::All];

    /// Returns the number of lost segments among `segments`.
    #[must_use]
    pub fn of(self, segments: u32) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Last(count) => count.min(segments),
            Self::All => segments,
        }
    }

    /// Returns the name in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Nothing => "nothing".into(),
            Self::Last(1) => "the last".into(),
            Self::Last(count) => format!("the last {count}"),
            Self::All => "all".into(),
        }
    }
}

/// The queue of the alternate path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlternateQueue {
    /// Nothing else uses the path.
    Idle,
    /// One CUBIC flow fills a queue of so many times the primary path's 100 packets.
    Filled(u32),
}

impl AlternateQueue {
    /// All queues, in the order of tables: the ratios of buffers are those of BLEST's WLAN and 3G (1:38).
    pub const EACH: [Self; 4] = [Self::Idle, Self::Filled(1), Self::Filled(10), Self::Filled(38)];

    /// Returns the name in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Idle => "idle".into(),
            Self::Filled(ratio) => format!("filled, 1:{ratio}"),
        }
    }
}

/// A burst and its losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Round-trip times of the primary and the alternate path, ms.
    pub rtts_ms: (u64, u64),
    /// The queue of the alternate path.
    pub alternate: AlternateQueue,
    /// Segments of the burst.
    pub segments: u32,
    /// The segments that the primary path drops.
    pub lost: Lost,
    /// Whether the primary path also drops the first segment that is sent again there.
    pub probe_lost: bool,
}

/// A burst with a policy: one simulation.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The burst.
    pub burst: Burst,
    /// The policy.
    pub policy: TailLoss,
}

impl Task {
    /// Returns the whole grid: for each burst [`RUNS`] simulations, one with each policy and one without a
    /// loss.
    #[must_use]
    pub fn grid() -> Vec<Self> {
        let runs = |burst: Burst| {
            let policies = TAIL_LOSS_POLICIES.iter().map(move |row| Self { burst, policy: row.policy });
            let whole = Burst { lost: Lost::Nothing, probe_lost: false, ..burst };
            policies.chain([Self { burst: whole, policy: TailLoss::Off }])
        };
        bursts().flat_map(runs).collect()
    }
}

/// Returns the bursts of the grid. If the last N are all segments of the burst, only `All` is in it.
pub(super) fn bursts() -> impl Iterator<Item = Burst> {
    let paths =
        RTTS_MS.into_iter().flat_map(|rtts_ms| AlternateQueue::EACH.map(|alternate| (rtts_ms, alternate)));
    paths.flat_map(|(rtts_ms, alternate)| {
        SEGMENTS.into_iter().flat_map(move |segments| {
            let lost =
                Lost::EACH.into_iter().filter(move |lost| *lost == Lost::All || lost.of(segments) < segments);
            lost.flat_map(move |lost| {
                [false, true].map(|probe_lost| Burst { rtts_ms, alternate, segments, lost, probe_lost })
            })
        })
    })
}
