//! Defines the keys that a measure of each kind needs.

use super::super::MeasureKind;

/// The needs of a kind of measure.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    /// Whether the kind measures flows; otherwise it measures links.
    pub(super) flows: bool,
    /// Whether the flows or links must be named; otherwise the default "all" makes sense.
    pub(super) named: bool,
    /// Meaning of the key `of`.
    pub(super) of: Reference,
    /// Whether the links must have a rate.
    pub(super) rates: bool,
    /// Whether the flows must have a size.
    pub(super) sizes: bool,
    /// Whether the kind averages over `mean`.
    pub(super) mean: bool,
}

/// The things that a kind's value is relative to.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reference {
    Flows,
    Links,
    Nothing,
}

const FLOWS: Needs =
    Needs { flows: true, named: false, of: Reference::Nothing, rates: false, sizes: false, mean: false };
const NAMED_FLOWS: Needs = Needs { named: true, ..FLOWS };
const LINKS: Needs = Needs { flows: false, ..NAMED_FLOWS };

impl MeasureKind {
    /// Whether the kind measures flows; otherwise it measures links.
    #[must_use]
    pub const fn is_of_flows(self) -> bool {
        self.needs().flows
    }

    /// Returns the needs of this kind.
    pub(super) const fn needs(self) -> Needs {
        match self {
            Self::Share => Needs { of: Reference::Flows, ..NAMED_FLOWS },
            Self::OfRate => Needs { of: Reference::Links, rates: true, ..FLOWS },
            Self::Goodput
            | Self::GoodputEach
            | Self::Packets
            | Self::SpreadFastest
            | Self::SpreadMean
            | Self::Jain
            | Self::Gap
            | Self::Grouped
            | Self::WrongSplit
            | Self::WrongMerge
            | Self::Timeouts
            | Self::TimeoutShare
            | Self::Window
            | Self::FactorM => FLOWS,
            Self::Utilisation | Self::LeastUsed | Self::Queue | Self::QueueP99 => {
                Needs { rates: true, ..LINKS }
            }
            Self::Loss => LINKS,
            Self::LossRatio => Needs { of: Reference::Links, ..LINKS },
            Self::Completion | Self::CompletionP50 | Self::CompletionP95 | Self::CompletionP99 => {
                Needs { sizes: true, ..FLOWS }
            }
            Self::Converged => Needs { mean: true, ..NAMED_FLOWS },
        }
    }
}
