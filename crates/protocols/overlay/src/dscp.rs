//! Differentiated services code points (RFC 2474): the six bits of an IP header by which routers and queues
//! tell kinds of traffic apart.

use std::fmt;
use std::str::FromStr;

/// The code points that have names: class selectors (RFC 2474), assured and expedited forwarding (RFC 2597,
/// RFC 3246), admitted voice (RFC 5865), lower effort (RFC 8622).
const NAMES: [(&str, u8); 23] = [
    ("le", 1),
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("va", 44),
];

/// A code point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dscp(u8);

/// The error of a text that is no code point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 0 to 63, or le, cs0 to cs7, af11 to af43, ef or va")]
pub struct NoDscp;

impl Dscp {
    /// The code point of packets that are not marked.
    pub const NONE: Self = Self(0);
    /// The highest number of a code point.
    pub const MAX: u8 = 63;

    /// Returns the code point of this number; `None` above [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// Returns the number, 0 to 63.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl FromStr for Dscp {
    type Err = NoDscp;

    fn from_str(text: &str) -> Result<Self, NoDscp> {
        let named = NAMES.iter().find(|(name, _)| *name == text);
        named.map(|(_, number)| Self(*number)).ok_or(NoDscp)
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// A set of code points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DscpSet(u64);

impl DscpSet {
    /// Whether the set has this code point. It always has the one of packets without a mark.
    #[must_use]
    pub const fn has(self, dscp: Dscp) -> bool {
        (self.0 | 1) >> dscp.0 & 1 == 1
    }

    /// Returns `dscp` if it is in the set, and otherwise the code point of packets without a mark.
    #[must_use]
    pub const fn only(self, dscp: Dscp) -> Dscp {
        if self.has(dscp) { dscp } else { Dscp::NONE }
    }
}

impl FromIterator<Dscp> for DscpSet {
    fn from_iter<T: IntoIterator<Item = Dscp>>(all: T) -> Self {
        Self(all.into_iter().fold(0, |set, dscp| set | 1 << dscp.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_rfcs() {
        for (name, number) in NAMES {
            let dscp: Dscp = name.parse().expect(name);
            assert_eq!((dscp.number(), dscp.to_string().as_str()), (number, name));
        }
        // RFC 2597: afXY is 8 X + 2 Y.
        for (class, drop) in (1..=4).flat_map(|class| (1..=3).map(move |drop| (class, drop))) {
            let dscp: Dscp = format!("af{class}{drop}").parse().expect("it");
            assert_eq!(dscp.number(), 8 * class + 2 * drop);
        }
        for bad in ["", "EF", "af14", "af51", "cs8", "46", "-1"] {
            assert_eq!(bad.parse::<Dscp>(), Err(NoDscp), "{bad}");
        }
        assert_eq!((Dscp::new(64), Dscp::new(63).map(|dscp| dscp.to_string())), (None, Some("63".into())));
    }

    #[test]
    fn sets() {
        let set: DscpSet = [1, 63].into_iter().filter_map(Dscp::new).collect();
        let has = (0..=Dscp::MAX).filter(|number| set.has(Dscp(*number)));
        assert_eq!(has.collect::<Vec<_>>(), [0, 1, 63]);
        assert_eq!((set.only(Dscp(63)), set.only(Dscp(62))), (Dscp(63), Dscp::NONE));
        assert!(DscpSet::default().has(Dscp::NONE) && !DscpSet::default().has(Dscp(46)));
    }
}
