//! Finds the autonomous system of an address by the longest prefix that holds it, as routers forward packets
//! (000 §3.4.1.1).
//!
//! The file has a prefix and the system that announces it in each line: `192.0.2.0/24 64500`, or three
//! columns as in CAIDA's pfx2as: `192.0.2.0 24 64500`. Of several origins (`64500_64501`, `64500,64501`) the
//! first counts.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::links_file::{LinksError, LinksErrorKind, each_line, expected};

/// Most prefixes of a table. The Internet has about a million of IPv4.
pub const PREFIXES_MAX: usize = 4_000_000;

/// A table of prefixes.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    /// By length, the longest first: network address to the name of the system. IPv4 addresses are mapped
    /// into IPv6.
    by_length: BTreeMap<Reverse<u8>, BTreeMap<u128, String>>,
    count: usize,
}

/// Returns the bits of an address, with IPv4 in ::ffff:0:0/96.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn masked(bits: u128, length: u8) -> u128 {
    if length == 0 { 0 } else { bits & (u128::MAX << (128 - u32::from(length))) }
}

/// Reads an address or a prefix; returns the address and the length among 128 bits.
fn prefix(text: &str, length: Option<&str>) -> Option<(u128, u8)> {
    let (address, length) = match length {
        Some(length) => (text, Some(length)),
        None => text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length))),
    };
    let address: IpAddr = address.parse().ok()?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let length = length.map_or(Some(whole), |length| length.parse::<u8>().ok())?;
    (length <= whole).then(|| (bits(address), length + (128 - whole)))
}

impl Prefixes {
    /// Reads a table.
    ///
    /// # Errors
    /// If a line has another form, or there are more than [`PREFIXES_MAX`] prefixes.
    pub fn read(text: &str) -> Result<Self, LinksError> {
        let mut table = Self::default();
        each_line(text, |line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (found, origin) = match words[..] {
                [text, origin] => (prefix(text, None), origin),
                [address, length, origin] => (prefix(address, Some(length)), origin),
                _ => return expected("a prefix and the system that announces it", line),
            };
            let Some((bits, length)) = found else {
                return expected("a prefix such as 192.0.2.0/24 or 2001:db8::/32", line);
            };
            let origin = origin.split(['_', ',']).next().unwrap_or_default();
            if table.count >= PREFIXES_MAX {
                return Err(LinksErrorKind::Graph(crate::as_graph::AsGraphError::TooMany(
                    "prefixes",
                    PREFIXES_MAX,
                )));
            }
            let of_length = table.by_length.entry(Reverse(length)).or_default();
            table.count += usize::from(of_length.insert(masked(bits, length), origin.to_owned()).is_none());
            Ok(())
        })?;
        Ok(table)
    }

    /// Returns the number of prefixes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no prefix.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the name of the system whose prefix is the longest that holds an address; of a prefix, its
    /// first address counts. `None` if the text is no address, or no prefix holds it.
    #[must_use]
    pub fn origin<'a>(&'a self, text: &str) -> Option<&'a str> {
        let (bits, _) = prefix(text, None)?;
        let of = |(length, table): (&Reverse<u8>, &'a BTreeMap<u128, String>)| {
            table.get(&masked(bits, length.0)).map(String::as_str)
        };
        self.by_length.iter().find_map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let text = "10.0.0.0/8 1\n10.1.0.0\t16\t2_7\n10.1.2.0/24 3,4\n2001:db8::/32 5\n0.0.0.0/0 9\n";
        let table = Prefixes::read(text).expect("a table");
        assert_eq!(table.len(), 5);
        for (address, origin) in [
            ("10.9.9.9", Some("1")),
            ("10.1.9.9", Some("2")),
            ("10.1.2.3", Some("3")),
            ("10.1.0.0/16", Some("2")),
            ("192.0.2.1", Some("9")),
            ("2001:db8::1", Some("5")),
            ("2001:db9::1", None),
            ("Oslo", None),
        ] {
            assert_eq!(table.origin(address), origin, "{address}");
        }
    }

    #[test]
    fn errors_say_the_line() {
        for text in ["10.0.0.0/8", "10.0.0.0/33 1", "2001:db8::/129 1", "x/8 1", "10.0.0.0 a 1", "1 2 3 4"] {
            let error = Prefixes::read(&format!("10.0.0.0/8 1\n{text}\n")).expect_err(text);
            assert_eq!(error.line, 2, "{error}");
        }
    }
}
