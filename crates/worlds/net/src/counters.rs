//! Numbers that only grow, each with a name and a help: a table of them is counted, written as JSON and for
//! Prometheus from one list.
//!
//! ```
//! use anabranch_net::counters::{Counted, Counters};
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! enum Count {
//!     Hits,
//!     Misses,
//! }
//!
//! impl Counted for Count {
//!     const ALL: &'static [(&'static str, &'static str, Self)] = &[
//!         ("hits", "Requests that were answered at once.", Self::Hits),
//!         ("misses", "Requests that had to wait.", Self::Misses),
//!     ];
//!
//!     fn place(self) -> usize {
//!         self as usize
//!     }
//! }
//!
//! let counters = Counters::new();
//! counters.count(Count::Hits);
//! let rows: Vec<_> = counters.rows().map(|row| (row.name, row.value)).collect();
//! assert_eq!(rows, [("hits", 1), ("misses", 0)]);
//! anabranch_net::counters::check::<Count>();
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::prometheus::{Exposition, Kind};

/// The numbers of one table.
pub trait Counted: Copy + 'static {
    /// Every number: its name, its help, and itself, each in its [place](Self::place).
    const ALL: &'static [(&'static str, &'static str, Self)];

    /// Returns the place of the number in the table. [`check`] tests it.
    fn place(self) -> usize;
}

/// A number with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name, in words joined by `_`.
    pub name: &'static str,
    /// One sentence about it.
    pub help: &'static str,
    /// Whether it can shrink.
    pub kind: Kind,
    /// The number.
    pub value: u64,
}

impl Row {
    /// Returns a number that can shrink.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, kind: Kind::Gauge, value }
    }

    /// Returns a number that only grows, and that others count.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, kind: Kind::Counter, value }
    }
}

/// The numbers of a table since they were made. Threads may share them.
pub struct Counters<C> {
    values: Box<[AtomicU64]>,
    of: PhantomData<fn(C)>,
}

impl<C: Counted> Counters<C> {
    /// Begins with zeros.
    #[must_use]
    pub fn new() -> Self {
        Self { values: C::ALL.iter().map(|_| AtomicU64::new(0)).collect(), of: PhantomData }
    }

    /// Adds one.
    pub fn count(&self, what: C) {
        self.add(what, 1);
    }

    /// Adds `number`.
    pub fn add(&self, what: C, number: u64) {
        self.values[what.place()].fetch_add(number, Ordering::Relaxed);
    }

    /// Returns every number.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let values = self.values.iter().map(|value| value.load(Ordering::Relaxed));
        C::ALL.iter().zip(values).map(|((name, help, _), value)| Row::counter(name, help, value))
    }
}

impl<C: Counted> Default for Counters<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> fmt::Debug for Counters<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counters").field(&self.values).finish()
    }
}

/// Returns numbers in Prometheus' text format, each named `anabranch_PREFIX_NAME`, and with `_total` behind
/// it if it only grows.
#[must_use]
pub fn exposition(prefix: &str, rows: impl Iterator<Item = Row>) -> String {
    let mut text = Exposition::new();
    for Row { name, help, kind, value } in rows {
        let end = if kind == Kind::Counter { "_total" } else { "" };
        text.metric(&format!("{prefix}_{name}{end}"), kind, help);
        text.sample(&[], value);
    }
    text.into_text()
}

/// Checks that every number of a table has its own place. For tests of all crates.
///
/// # Panics
/// If one has not.
pub fn check<C: Counted>() {
    for (place, (name, _, what)) in C::ALL.iter().enumerate() {
        assert_eq!(what.place(), place, "{name}");
    }
    crate::prometheus::check(&exposition("table", Counters::<C>::new().rows()));
}
