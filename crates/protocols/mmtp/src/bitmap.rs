//! A bitmap of the blocks of a content: one bit per block, eight bytes per MiB.

/// A set of blocks of one content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    /// Bit `g % 64` of word `g / 64` stands for block `g`.
    words: Vec<u64>,
}

impl Bitmap {
    /// Creates an empty set for a content of `blocks` blocks. It has room for block numbers up to the next
    /// multiple of 64.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        Self { words: vec![0; usize::try_from(blocks.div_ceil(64)).unwrap_or(usize::MAX)] }
    }

    /// Whether `block` is in the set.
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        let word = usize::try_from(block / 64).ok().and_then(|word| self.words.get(word));
        word.is_some_and(|word| word & bit(block) != 0)
    }

    /// Adds a block and returns whether it is new. A block beyond the set's room is not added.
    pub fn insert(&mut self, block: u64) -> bool {
        self.change(block, |word, bit| word | bit)
    }

    /// Removes a block and returns whether it was in the set.
    pub fn remove(&mut self, block: u64) -> bool {
        self.change(block, |word, bit| word & !bit)
    }

    /// Replaces the word of `block` by the result of `to`, which gets the word and the block's bit. Returns
    /// whether the word has changed.
    fn change(&mut self, block: u64, to: impl Fn(u64, u64) -> u64) -> bool {
        let Some(word) = usize::try_from(block / 64).ok().and_then(|word| self.words.get_mut(word)) else {
            return false;
        };
        let before = std::mem::replace(word, to(*word, bit(block)));
        before != *word
    }
}

const fn bit(block: u64) -> u64 {
    1 << (block % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            blocks in 0_u64..200,
            ops in prop::collection::vec((any::<bool>(), 0_u64..300), 0..200),
        ) {
            let (mut bitmap, mut model) = (Bitmap::new(blocks), BTreeSet::new());
            let room = blocks.next_multiple_of(64);
            for (insert, block) in ops {
                if insert {
                    prop_assert_eq!(bitmap.insert(block), block < room && model.insert(block));
                } else {
                    prop_assert_eq!(bitmap.remove(block), model.remove(&block));
                }
                prop_assert_eq!(bitmap.contains(block), model.contains(&block));
            }
            for block in (0..300).chain([u64::MAX]) {
                prop_assert_eq!(bitmap.contains(block), model.contains(&block));
            }
        }
    }
}
