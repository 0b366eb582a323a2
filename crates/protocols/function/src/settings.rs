//! Reads settings: addresses, numbers with units, ports of a protocol.

use core::net::Ipv4Addr;

/// Why a setting cannot be used: a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong(pub &'static str);

/// Reads an address.
///
/// # Errors
/// If it is none.
pub fn address(text: &str) -> Result<u32, Wrong> {
    text.parse::<Ipv4Addr>().map(u32::from).map_err(|_| Wrong("this is no IPv4 address"))
}

/// Reads a number; `k`, `M` and `G` after it are powers of 1,000.
///
/// # Errors
/// If it is none, or more than 64 bits have room for.
pub fn number(text: &str) -> Result<u64, Wrong> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.ok_or(Wrong("this is no number (such as 1500, 64k, 1M)"))
}

/// Reads a number within bounds.
///
/// # Errors
/// If it is none, or outside of them.
pub fn number_within(text: &str, least: u64, most: u64, wrong: &'static str) -> Result<u64, Wrong> {
    number(text).ok().filter(|number| (least..=most).contains(number)).ok_or(Wrong(wrong))
}

/// Reads `tcp/22`, or `icmp` for a protocol without ports: the number of the protocol, and the port or 0.
///
/// # Errors
/// If it is neither.
pub fn service(text: &str) -> Result<(u8, u16), Wrong> {
    let wrong = Wrong("this is no service (such as tcp/22, udp/53, icmp)");
    if text == "icmp" {
        return Ok((1, 0));
    }
    let (protocol, port) = text.split_once('/').ok_or(wrong)?;
    let protocol = match protocol {
        "tcp" => 6,
        "udp" => 17,
        _ => return Err(wrong),
    };
    port.parse().ok().filter(|port| *port != 0).map(|port| (protocol, port)).ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write_is_read() {
        assert_eq!(address("10.0.0.1"), Ok(0x0a00_0001));
        assert_eq!(number("64k"), Ok(64_000));
        assert_eq!(service("udp/53"), Ok((17, 53)));
        assert_eq!(service("icmp"), Ok((1, 0)));
        for wrong in ["", "tcp", "tcp/", "tcp/0", "tcp/65536", "sctp/1", "tcp/22/1"] {
            assert!(service(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "k", "-1", "1.5M", "99999999999999999999", "99999999999G999"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        assert!(number("99999999999999G").is_err(), "too large");
        assert!(number("µ").is_err() && address("10.0.0").is_err());
    }
}
