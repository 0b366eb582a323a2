//! What a measure of each kind must say, so that it makes sense.

use super::super::MeasureKind;

/// What a kind of measure needs.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    /// It is about flows; otherwise about links.
    pub(super) flows: bool,
    /// They must be named; otherwise "all" makes sense.
    pub(super) named: bool,
    /// What `of` may be.
    pub(super) of: Reference,
    /// The links must have a rate.
    pub(super) rates: bool,
    /// The flows must have a size.
    pub(super) sizes: bool,
    /// It averages over `mean`.
    pub(super) mean: bool,
}

/// In proportion to what a kind is.
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
    /// Whether it is about flows; otherwise it is about links.
    #[must_use]
    pub const fn is_of_flows(self) -> bool {
        self.needs().flows
    }

    /// What a measure of this kind must say.
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
