//! A vote in which each voter has one vote and more than half of all votes decide.

/// The result of a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ballot<T> {
    /// More than half of all voters have voted for this value.
    Majority(T),
    /// No value has a majority yet, but the missing votes can still give one value a majority.
    Open,
    /// No value can reach a majority any more.
    Split,
}

impl<T: PartialEq> Ballot<T> {
    /// Counts the votes in `said`; `silent` is the number of voters that have not voted yet.
    pub fn of(said: impl IntoIterator<Item = T>, silent: usize) -> Self {
        let mut counts: Vec<(T, usize)> = Vec::new();
        for value in said {
            match counts.iter_mut().find(|(known, _)| *known == value) {
                Some((_, count)) => *count += 1,
                None => counts.push((value, 1)),
            }
        }
        let all = counts.iter().map(|(_, count)| count).sum::<usize>() + silent;
        let Some((value, most)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
            return Self::Open;
        };
        match () {
            () if 2 * most > all => Self::Majority(value),
            () if 2 * (most + silent) > all => Self::Open,
            () => Self::Split,
        }
    }

    /// Returns the value that has the majority, if there is one.
    pub fn majority(self) -> Option<T> {
        match self {
            Self::Majority(value) => Some(value),
            Self::Open | Self::Split => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_decide() {
        assert_eq!(Ballot::of([1, 1, 2], 0), Ballot::Majority(1));
        assert_eq!(Ballot::of([1, 2], 0), Ballot::Split);
        assert_eq!(Ballot::of([1, 2], 1), Ballot::Open);
        assert_eq!(Ballot::of([1, 1, 2], 1), Ballot::Open);
        assert_eq!(Ballot::of([1, 1, 2, 3], 0), Ballot::Split);
        assert_eq!(Ballot::of([1; 0], 3), Ballot::Open);
        assert_eq!(Ballot::of([1; 0], 0), Ballot::Open);
        assert_eq!(Ballot::of([1], 0), Ballot::Majority(1));
    }
}
