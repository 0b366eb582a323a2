//! Beds, transports and runs: what is simulated.

use anabranch_mptcp::{SCHEDULERS, SchedulerKind};

use super::workload::Workload;

/// Queue of a link in the beds with short buffers, packets.
pub const QUEUE_PACKETS: u32 = 100;
/// Queue of a link in the beds with long buffers, packets.
pub const LONG_QUEUE_PACKETS: u32 = 3_750;

/// The two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// Two links of 25 Mbit/s and 25 ms each way.
    Symmetric,
    /// A WLAN of 25 Mbit/s, 25 ms each way and 1 % of random loss, and a 3G link of 5 Mbit/s and 65 ms.
    WlanAnd3g,
}

/// A testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bed {
    /// The two paths.
    pub paths: Paths,
    /// Whether the buffers of both symmetric links, or the buffer of the 3G link, are long.
    pub long_buffers: bool,
    /// Whether each link carries a CUBIC flow without end beside the workload.
    pub background: bool,
    /// Whether the first link goes down for good in the middle of the workload.
    pub cut: bool,
}

impl Bed {
    /// Returns all beds of the study, without those that are cut.
    #[must_use]
    pub fn each() -> Vec<Self> {
        let mut beds = Vec::new();
        for paths in [Paths::Symmetric, Paths::WlanAnd3g] {
            for long_buffers in [false, true] {
                for background in [false, true] {
                    beds.push(Self { paths, long_buffers, background, cut: false });
                }
            }
        }
        beds
    }

    /// Returns the bed with a cut.
    #[must_use]
    pub const fn cut() -> Self {
        Self { paths: Paths::Symmetric, long_buffers: false, background: false, cut: true }
    }

    /// Returns the name in tables.
    #[must_use]
    pub fn name(&self) -> String {
        let paths = match self.paths {
            Paths::Symmetric => "symmetric",
            Paths::WlanAnd3g => "WLAN + 3G",
        };
        let buffers = if self.long_buffers { LONG_QUEUE_PACKETS } else { QUEUE_PACKETS };
        let background = if self.background { ", background" } else { "" };
        let cut = if self.cut { ", first path cut" } else { "" };
        format!("{paths}, {buffers} packets{background}{cut}")
    }
}

/// The transport of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP over the path of this number.
    Tcp(usize),
    /// MPTCP over both paths with this scheduler.
    Mptcp(SchedulerKind),
    /// MPTCP over both paths with minRTT, each subflow with the controller of TCP: nothing is coupled. It
    /// shows what the coupling costs.
    Uncoupled,
}

impl Transport {
    /// Returns all transports, in the order of tables.
    #[must_use]
    pub fn each() -> Vec<Self> {
        let schedulers = SCHEDULERS.iter().map(|row| Self::Mptcp(row.kind));
        [Self::Tcp(0), Self::Tcp(1)].into_iter().chain(schedulers).chain([Self::Uncoupled]).collect()
    }

    /// Returns the name in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Tcp(path) => format!("TCP {}", path + 1),
            Self::Uncoupled => "minrtt, uncoupled".into(),
            Self::Mptcp(kind) => {
                let row = SCHEDULERS.iter().find(|row| row.kind == kind);
                row.map_or("MPTCP", |row| row.name).to_owned()
            }
        }
    }
}

/// A simulation.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The testbed.
    pub bed: Bed,
    /// The workload.
    pub workload: Workload,
    /// The transport.
    pub transport: Transport,
    /// The seed.
    pub seed: u64,
}

impl Task {
    /// Returns all simulations of the study with the seeds from 1 to `seeds`.
    #[must_use]
    pub fn each(seeds: u64) -> Vec<Self> {
        let mut tasks = Vec::new();
        let beds = Bed::each().into_iter().map(|bed| (bed, Workload::EACH.to_vec()));
        for (bed, workloads) in beds.chain([(Bed::cut(), vec![Workload::Video])]) {
            for workload in workloads {
                // A cut path ends what TCP has on it.
                let transports = Transport::each().into_iter();
                for transport in transports.filter(|transport| !bed.cut || *transport != Transport::Tcp(0)) {
                    tasks.extend((1..=seeds).map(|seed| Self { bed, workload, transport, seed }));
                }
            }
        }
        tasks
    }
}
