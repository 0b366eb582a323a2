//! Holds the state of a queue discipline, of any kind.

use crate::codel::Codel;
use crate::config::{Discipline, LinkConfig};
use crate::fq_codel::FqCodel;
use crate::packet::Packet;
use crate::pie::Pie;
use crate::red::{Red, Thresholds};
use crate::rng::RngSeed;
use crate::targeted_drop::TargetedDrop;
use crate::trace::Trace;
use anabranch_algo::Time;

/// Holds the state of a queue discipline; `None` for disciplines without a state.
#[derive(Clone, Debug)]
pub(crate) enum Aqm<P> {
    None,
    Codel(Codel),
    FqCodel(Box<FqCodel<P>>),
    Pie(Box<Pie>),
    Red(Box<Red>),
    TargetedDrop(TargetedDrop),
}

impl<P: Packet> Aqm<P> {
    pub(crate) fn new(config: &LinkConfig, rng_seed: RngSeed) -> Self {
        match config.discipline {
            Discipline::DropTail | Discipline::Random { .. } => Self::None,
            Discipline::CoDel { target, interval, ecn } => Self::Codel(Codel::new(target, interval, ecn)),
            Discipline::FqCodel { target, interval, ecn, flows, quantum_bytes } => {
                let (codel, hash) = (Codel::new(target, interval, ecn), rng_seed.stream("flows").bits());
                Self::FqCodel(Box::new(FqCodel::new(codel, flows, quantum_bytes, hash)))
            }
            Discipline::Pie { target, burst, ecn } => {
                Self::Pie(Box::new(Pie::new(target, burst, ecn, rng_seed.stream("pie"))))
            }
            Discipline::Red { min_bytes, max_bytes, drop, weight, ecn } => {
                let thresholds = Thresholds { min_bytes, max_bytes, drop, weight, ecn };
                let trace_rate = config.trace.as_ref().map(Trace::mean_rate);
                Self::Red(Box::new(Red::new(thresholds, trace_rate, rng_seed.stream("red"))))
            }
            Discipline::TargetedDrop { above_packets, hold, policy } => {
                Self::TargetedDrop(TargetedDrop::new(above_packets, hold, policy, rng_seed.stream("victims")))
            }
        }
    }

    /// Returns the number of packets that wait here.
    pub(crate) const fn packets(&self) -> usize {
        if let Self::FqCodel(queues) = self { queues.len() } else { 0 }
    }

    /// Returns the time of the next update; [`Time::NEVER`] if the discipline has no updates.
    pub(crate) const fn next_update(&self) -> Time {
        if let Self::Pie(pie) = self { pie.next_update() } else { Time::NEVER }
    }
}
