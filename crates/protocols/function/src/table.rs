//! A table with a fixed number of places: each key has a few places in which it can be (a set), so every
//! operation takes the same short time. Where a set is full, the entry that was not used for the longest
//! gives way. Which set a key has depends on a seed, so that a host outside cannot fill one set on purpose.

/// A type of which every pattern of bytes is a value, so that the state of an instance can be copied as
/// bytes, and read from bytes that another host sent.
///
/// # Safety
/// The type has integers and arrays of them only: no reference, `bool`, `char`, enum or padding that matters.
#[expect(unsafe_code, reason = "who implements it promises something")]
pub unsafe trait Plain: Copy {}

/// The number of places in which a key can be.
pub const WAYS: usize = 4;

/// A key of a [`Table`].
pub trait Key: Plain + Eq {
    /// Mixes the key into one number, with this seed.
    fn mix(&self, seed: u64) -> u64;
}

/// Mixes a number into a hash: a multiplication with an odd constant, and a fold of its upper half (as in
/// wyhash).
#[must_use]
pub const fn mixed(hash: u64, number: u64) -> u64 {
    let product = ((hash ^ number) as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (product >> 64) as u64 ^ product as u64
}

/// One entry.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slot<K, V> {
    /// When it was used the last time, milliseconds; 0 for an empty place.
    used_ms: u64,
    key: K,
    value: V,
}

/// A table of `SETS` times [`WAYS`] places. A number of sets that is a power of two is fastest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table<K, V, const SETS: usize> {
    sets: [[Slot<K, V>; WAYS]; SETS],
}

#[expect(unsafe_code, reason = "its fields are plain if its parameters are")]
// SAFETY: a table consists of numbers, keys and values.
unsafe impl<K: Plain, V: Plain, const SETS: usize> Plain for Table<K, V, SETS> {}

impl<K: Key, V: Plain, const SETS: usize> Table<K, V, SETS> {
    /// Makes an empty table, filled with this key and value, whose bytes are best all zero.
    #[must_use]
    pub const fn new(key: K, value: V) -> Self {
        Self { sets: [[Slot { used_ms: 0, key, value }; WAYS]; SETS] }
    }

    fn set(&mut self, key: &K, seed: u64) -> &mut [Slot<K, V>; WAYS] {
        &mut self.sets[(key.mix(seed) % SETS as u64) as usize]
    }

    /// Returns the value of a key that was used in the last `idle_ms`, without using it.
    pub fn peek(&mut self, key: &K, seed: u64, now_ms: u64, idle_ms: u64) -> Option<&mut V> {
        let is_fresh =
            |slot: &Slot<K, V>| slot.used_ms != 0 && now_ms.saturating_sub(slot.used_ms) <= idle_ms;
        let slot = self.set(key, seed).iter_mut().find(|slot| slot.key == *key && is_fresh(slot))?;
        Some(&mut slot.value)
    }

    /// Uses a key that was used in the last `idle_ms`, and returns its value.
    pub fn get(&mut self, key: &K, seed: u64, now_ms: u64, idle_ms: u64) -> Option<&mut V> {
        let is_fresh =
            |slot: &Slot<K, V>| slot.used_ms != 0 && now_ms.saturating_sub(slot.used_ms) <= idle_ms;
        let slot = self.set(key, seed).iter_mut().find(|slot| slot.key == *key && is_fresh(slot))?;
        slot.used_ms = now_ms.max(1);
        Some(&mut slot.value)
    }

    /// Adds a key that is not there, in an empty place or in that of the entry that was not used for the
    /// longest. Returns its value, and whether an entry that was used in the last `idle_ms` gave way.
    pub fn add(&mut self, key: K, value: V, seed: u64, now_ms: u64, idle_ms: u64) -> (&mut V, bool) {
        let set = self.set(&key, seed);
        let known = set.iter().position(|slot| slot.key == key && slot.used_ms != 0);
        let oldest = (0..WAYS).min_by_key(|way| set[*way].used_ms).unwrap_or(0);
        let slot = &mut set[known.unwrap_or(oldest)];
        let is_lost = known.is_none() && slot.used_ms != 0 && now_ms.saturating_sub(slot.used_ms) <= idle_ms;
        *slot = Slot { used_ms: now_ms.max(1), key, value };
        (&mut slot.value, is_lost)
    }

    /// Returns the number of entries that were used in the last `idle_ms`.
    #[must_use]
    pub fn count(&self, now_ms: u64, idle_ms: u64) -> u64 {
        let is_fresh =
            |slot: &&Slot<K, V>| slot.used_ms != 0 && now_ms.saturating_sub(slot.used_ms) <= idle_ms;
        self.sets.iter().flatten().filter(is_fresh).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Number(u32);

    #[expect(unsafe_code, reason = "a test's key")]
    // SAFETY: it is an integer.
    unsafe impl Plain for Number {}
    impl Key for Number {
        fn mix(&self, seed: u64) -> u64 {
            mixed(seed, u64::from(self.0))
        }
    }
    #[expect(unsafe_code, reason = "a test's value")]
    // SAFETY: it is an integer.
    unsafe impl Plain for u32 {}

    #[test]
    fn the_longest_unused_gives_way() {
        let mut table: Table<Number, u32, 1> = Table::new(Number(0), 0);
        for n in 1..=4 {
            assert!(!table.add(Number(n), n, 9, u64::from(n), 100).1);
        }
        assert_eq!(table.get(&Number(1), 9, 5, 100), Some(&mut 1));
        assert!(table.add(Number(5), 5, 9, 6, 100).1, "2 gave way");
        assert_eq!(table.get(&Number(2), 9, 6, 100), None);
        assert_eq!(table.count(6, 100), 4);
        assert_eq!(table.peek(&Number(1), 9, 105, 100), Some(&mut 1));
        assert_eq!(table.get(&Number(1), 9, 106, 100), None, "it was idle");
        assert!(!table.add(Number(6), 6, 9, 1_000, 100).1, "an idle entry loses nothing");
    }

    #[test]
    fn sets_are_used_evenly() {
        let mut table: Table<Number, u32, 64> = Table::new(Number(0), 0);
        let lost = (0..128).filter(|n| table.add(Number(*n), 0, 7, 1, 100).1).count();
        assert!(lost < 16, "{lost} of 128 in 256 places");
    }
}
