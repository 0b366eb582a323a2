//! Which groups of a content are here: a bit each, eight bytes a MiB.

/// A set of groups of a content that has so many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    /// Bit `g % 64` of word `g / 64` is group `g`.
    words: Vec<u64>,
}

impl Bitmap {
    /// None of `groups` groups; has room for those only, up to the next multiple of 64.
    #[must_use]
    pub fn new(groups: u64) -> Self {
        Self { words: vec![0; usize::try_from(groups.div_ceil(64)).unwrap_or(usize::MAX)] }
    }

    /// Whether `group` is in it.
    #[must_use]
    pub fn contains(&self, group: u64) -> bool {
        let word = usize::try_from(group / 64).ok().and_then(|word| self.words.get(word));
        word.is_some_and(|word| word & bit(group) != 0)
    }

    /// Adds a group; whether it was not there. One that there is no room for is left out.
    pub fn insert(&mut self, group: u64) -> bool {
        self.change(group, |word, bit| word | bit)
    }

    /// Removes a group; whether it was there.
    pub fn remove(&mut self, group: u64) -> bool {
        self.change(group, |word, bit| word & !bit)
    }

    /// Whether that changes it.
    fn change(&mut self, group: u64, to: impl Fn(u64, u64) -> u64) -> bool {
        let Some(word) = usize::try_from(group / 64).ok().and_then(|word| self.words.get_mut(word)) else {
            return false;
        };
        let before = std::mem::replace(word, to(*word, bit(group)));
        before != *word
    }
}

const fn bit(group: u64) -> u64 {
    1 << (group % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            groups in 0_u64..200,
            ops in prop::collection::vec((any::<bool>(), 0_u64..300), 0..200),
        ) {
            let (mut bitmap, mut model) = (Bitmap::new(groups), BTreeSet::new());
            let room = groups.next_multiple_of(64);
            for (insert, group) in ops {
                if insert {
                    prop_assert_eq!(bitmap.insert(group), group < room && model.insert(group));
                } else {
                    prop_assert_eq!(bitmap.remove(group), model.remove(&group));
                }
                prop_assert_eq!(bitmap.contains(group), model.contains(&group));
            }
            for group in (0..300).chain([u64::MAX]) {
                prop_assert_eq!(bitmap.contains(group), model.contains(&group));
            }
        }
    }
}
