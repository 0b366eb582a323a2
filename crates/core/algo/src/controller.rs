//! Defines the controller that a subflow runs: one from the table ([`Algorithm`]), or one that a program
//! brings.
//!
//! A machine that accepts both keeps a [`ControllerKind`] and makes a fresh [`Controller`] from it for each
//! subflow. A program's controller may allocate; the controllers of the table never do.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

use crate::Span;
use crate::control::{Ack, Algorithm, CongestionEvent, Control, Flight, Group, SubflowStats};

/// Holds the congestion control of one subflow.
#[expect(clippy::large_enum_variant, reason = "a controller of the table is never allocated")]
pub enum Controller {
    /// A controller of [`ALGORITHMS`](crate::control::ALGORITHMS).
    Table(Algorithm),
    /// A controller that the program brings.
    Own(Box<dyn Control + Send>),
}

impl Control for Controller {
    #[inline]
    fn on_flight(&mut self, flight: &Flight) {
        match self {
            Self::Table(algorithm) => algorithm.on_flight(flight),
            Self::Own(own) => own.on_flight(flight),
        }
    }
    #[inline]
    fn pace(&self) -> Option<Span> {
        match self {
            Self::Table(algorithm) => algorithm.pace(),
            Self::Own(own) => own.pace(),
        }
    }
    #[inline]
    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> u32 {
        match self {
            Self::Table(algorithm) => algorithm.on_ack(ack, group),
            Self::Own(own) => own.on_ack(ack, group),
        }
    }
    #[inline]
    fn on_congestion(&mut self, event: &CongestionEvent, group: &Group<'_>) -> u32 {
        match self {
            Self::Table(algorithm) => algorithm.on_congestion(event, group),
            Self::Own(own) => own.on_congestion(event, group),
        }
    }
    #[inline]
    fn stats(&self, srtt: Span) -> SubflowStats {
        match self {
            Self::Table(algorithm) => algorithm.stats(srtt),
            Self::Own(own) => own.stats(srtt),
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(algorithm) => algorithm.fmt(f),
            Self::Own(_) => f.write_str("Own"),
        }
    }
}

/// Makes controllers of one kind. Cloning it is cheap.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a controller of the table is never allocated")]
pub enum ControllerKind {
    /// Makes copies of this algorithm, which must be fresh.
    Table(Algorithm),
    /// Calls this function for each controller.
    Own(Arc<dyn Fn() -> Box<dyn Control + Send> + Send + Sync>),
}

impl ControllerKind {
    /// Returns a kind whose controllers the program brings: `make` returns a fresh one at every call.
    pub fn own<C: Control + Send + 'static>(make: impl Fn() -> C + Send + Sync + 'static) -> Self {
        Self::Own(Arc::new(move || Box::new(make())))
    }

    /// Makes a fresh controller of this kind.
    #[must_use]
    pub fn fresh(&self) -> Controller {
        match self {
            Self::Table(algorithm) => Controller::Table(*algorithm),
            Self::Own(make) => Controller::Own(make()),
        }
    }

    /// Returns the algorithm of the table; `None` if the program brings its own controllers.
    #[must_use]
    pub const fn algorithm(&self) -> Option<Algorithm> {
        match self {
            Self::Table(algorithm) => Some(*algorithm),
            Self::Own(_) => None,
        }
    }
}

impl From<Algorithm> for ControllerKind {
    fn from(algorithm: Algorithm) -> Self {
        Self::Table(algorithm)
    }
}

impl fmt::Debug for ControllerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fresh().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    /// Holds a window that ignores the group: each packet that arrives adds one, and congestion sets it to
    /// one.
    struct Fixed(u32);

    impl Control for Fixed {
        fn on_ack(&mut self, ack: &Ack, _group: &Group<'_>) -> u32 {
            self.0 += ack.acked;
            self.0
        }
        fn on_congestion(&mut self, _event: &CongestionEvent, _group: &Group<'_>) -> u32 {
            self.0 = 1;
            self.0
        }
        fn stats(&self, srtt: Span) -> SubflowStats {
            SubflowStats { srtt, ..SubflowStats::default() }
        }
    }

    const ACK: Ack = Ack {
        now: Time::ZERO,
        acked: 5,
        round: 0,
        srtt: Span::ZERO,
        rtt: Span::ZERO,
        min_rtt: Span::ZERO,
        cwnd_limited: true,
        recovering: false,
    };

    #[test]
    fn each_subflow_has_a_fresh_one() {
        let alone = Group { members: &[], me: 0 };
        let own = ControllerKind::own(|| Fixed(10));
        let (mut first, mut second) = (own.fresh(), own.clone().fresh());
        assert_eq!((first.on_ack(&ACK, &alone), first.on_ack(&ACK, &alone)), (15, 20));
        assert_eq!(second.on_ack(&ACK, &alone), 15);
        assert!(own.algorithm().is_none());
        let reno = Algorithm::by_name("reno").expect("in the table");
        let table = ControllerKind::from(reno);
        assert_eq!(table.algorithm(), Some(reno));
        assert_eq!(table.fresh().on_ack(&ACK, &alone), 15, "slow start");
        assert_eq!(table.fresh().on_ack(&ACK, &alone), 15, "and again from the start");
    }
}
