//! Decides which destinations are allowed: [`Policy`].
//!
//! Rules name a network, and perhaps a port. Of the rules that fit an address, the most special one decides:
//! the one with the longest prefix, then one with a port, then `deny`. A port that is denied is opened only
//! by a rule that names the port, however special a rule for a whole network is. The networks in
//! [`NOT_PUBLIC`] are denied by rules that come after all others of their length. An address that no rule
//! fits is allowed.
//!
//! Addresses are judged after the name was resolved. An IPv6 address that stands for an IPv4 address is
//! judged as the latter.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The networks without public hosts, from the IANA's registries of special-purpose addresses (RFC 6890),
/// with multicast. They are denied unless a rule allows them.
pub const NOT_PUBLIC: &[(&str, &str)] = &[
    ("0.0.0.0/8", "this network, RFC 791"),
    ("10.0.0.0/8", "private, RFC 1918"),
    ("100.64.0.0/10", "shared by a provider's customers, RFC 6598"),
    ("127.0.0.0/8", "loopback, RFC 1122"),
    ("169.254.0.0/16", "link-local, RFC 3927"),
    ("172.16.0.0/12", "private, RFC 1918"),
    ("192.0.0.0/24", "protocol assignments, RFC 6890"),
    ("192.0.2.0/24", "documentation, RFC 5737"),
    ("192.88.99.0/24", "6to4 relays, RFC 7526"),
    ("192.168.0.0/16", "private, RFC 1918"),
    ("198.18.0.0/15", "benchmarks, RFC 2544"),
    ("198.51.100.0/24", "documentation, RFC 5737"),
    ("203.0.113.0/24", "documentation, RFC 5737"),
    ("224.0.0.0/4", "multicast, RFC 5771"),
    ("240.0.0.0/4", "reserved, with broadcast, RFC 1112"),
    ("::/96", "unspecified, loopback, and IPv4-compatible, RFC 4291"),
    ("64:ff9b:1::/48", "translation to IPv4 of local use, RFC 8215"),
    ("100::/64", "discard, RFC 6666"),
    ("2001::/23", "protocol assignments, with Teredo and ORCHID, RFC 2928"),
    ("2001:db8::/32", "documentation, RFC 3849"),
    ("2002::/16", "6to4, RFC 3056"),
    ("3fff::/20", "documentation, RFC 9637"),
    ("5f00::/16", "segment routing, RFC 9602"),
    ("fc00::/7", "private, RFC 4193"),
    ("fe80::/10", "link-local, RFC 4291"),
    ("fec0::/10", "site-local, RFC 3879"),
    ("ff00::/8", "multicast, RFC 4291"),
];

/// A network, and perhaps a port of it. It is written `NET`, `NET:PORT`, or `:PORT` for all networks. A
/// network is an address, perhaps followed by `/BITS`; before a port, one of IPv6 stands in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The network; `None` stands for all of both families.
    network: Option<(IpAddr, u8)>,
    port: Option<u16>,
}

impl Scope {
    /// Whether this destination is in the scope.
    #[must_use]
    pub fn has(&self, address: SocketAddr) -> bool {
        self.port.is_none_or(|port| port == address.port())
            && self.network.is_none_or(|network| is_in(address.ip(), network))
    }

    /// Whether this host is in the scope, at any port.
    #[must_use]
    pub fn has_host(&self, host: IpAddr) -> bool {
        self.network.is_none_or(|network| is_in(host, network))
    }

    /// Returns the rank of the scope; the highest rank decides.
    fn speciality(&self) -> (u8, bool) {
        (self.network.map_or(0, |(_, bits)| bits), self.port.is_some())
    }
}

fn is_in(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (a.to_bits() ^ n.to_bits()).leading_zeros() >= bits.into(),
        (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits() ^ n.to_bits()).leading_zeros() >= bits.into(),
        _ => false,
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.network, self.port) {
            (Some((ip @ IpAddr::V6(_), bits)), Some(port)) => write!(f, "[{ip}/{bits}]:{port}"),
            (Some((ip, bits)), Some(port)) => write!(f, "{ip}/{bits}:{port}"),
            (Some((ip, bits)), None) => write!(f, "{ip}/{bits}"),
            (None, Some(port)) => write!(f, ":{port}"),
            (None, None) => f.write_str("0.0.0.0/0 and ::/0"),
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no network: expected an address, or a network such as 10.0.0.0/8 or \
                 fd00::/8, with :PORT behind it if it is about one port ([fd00::/8]:443), or :PORT alone"
            )
        };
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (network, port) = match bracketed {
            Some((network, "")) => (network, None),
            Some((network, port)) => (network, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
            // A text with more than one colon is an address of IPv6.
            None => match text.split_once(':') {
                Some((network, port)) if !port.contains(':') => (network, Some(port)),
                _ => (text, None),
            },
        };
        let port = port.map(|port| port.parse::<u16>().map_err(|_| wrong())).transpose()?;
        if network.is_empty() {
            return match (bracketed, port) {
                (None, Some(_)) => Ok(Self { network: None, port }),
                _ => Err(wrong()),
            };
        }
        let (ip, bits) = match network.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (network, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let all = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        if bits > all {
            return Err(wrong());
        }
        if !is_in(masked(ip, bits), (ip, all)) {
            return Err(format!(
                "'{text}' is a host and no network: did you mean {}/{bits}?",
                masked(ip, bits)
            ));
        }
        Ok(Self { network: Some((ip, bits)), port })
    }
}

/// Returns the first address of the network with this prefix length that contains `ip`.
fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// Returns the IPv4 address for which an IPv6 address stands: mapped (RFC 4291 section 2.5.5.2), or
/// translated by the well-known prefix (RFC 6052 section 2.1). Returns other addresses unchanged.
fn meant(ip: IpAddr) -> IpAddr {
    const TRANSLATED: (IpAddr, u8) = (IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), 96);
    match ip.to_canonical() {
        IpAddr::V6(v6) if is_in(ip, TRANSLATED) => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        canonical => canonical,
    }
}

/// The rules of allowed destinations; see the [module](self).
#[derive(Clone, Debug)]
pub struct Policy {
    /// The scopes with whether they are allowed, the most special first.
    rules: Vec<(Scope, bool)>,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(&[], &[])
    }
}

impl Policy {
    /// Creates a policy of these scopes that also denies the networks that are [not public](NOT_PUBLIC).
    ///
    /// # Panics
    /// Never: the table holds networks.
    #[must_use]
    pub fn new(allow: &[Scope], deny: &[Scope]) -> Self {
        let denied = deny.iter().map(|scope| (*scope, false));
        let allowed = allow.iter().map(|scope| (*scope, true));
        let not_public = NOT_PUBLIC.iter().map(|(network, _)| network.parse().expect("a network"));
        let not_public = not_public.map(|scope: Scope| (scope, false));
        let mut rules: Vec<(Scope, bool)> = denied.chain(allowed).chain(not_public).collect();
        // The sort is stable, so that scopes of equal rank stay in this order.
        rules.sort_by_key(|(scope, _)| std::cmp::Reverse(scope.speciality()));
        Self { rules }
    }

    /// Whether a connection to this address is allowed.
    #[must_use]
    pub fn allows(&self, address: SocketAddr) -> bool {
        let meant = SocketAddr::new(meant(address.ip()), address.port());
        let mut fitting = self.rules.iter().filter(|(scope, _)| scope.has(meant));
        match fitting.next() {
            None => true,
            Some((Scope { port: None, .. }, true)) => {
                !fitting.any(|(scope, allows)| !allows && scope.port.is_some())
            }
            Some((_, allows)) => *allows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &str, deny: &str) -> Policy {
        let scopes = |text: &str| -> Vec<Scope> {
            text.split_whitespace().map(|scope| scope.parse().expect("a network")).collect()
        };
        Policy::new(&scopes(allow), &scopes(deny))
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn only_public_addresses_are_allowed_unless_told_otherwise() {
        let policy = Policy::default();
        for public in [
            "8.8.8.8:53",
            "1.1.1.1:443",
            "9.255.255.255:1",
            "11.0.0.0:1",
            "100.63.255.255:1",
            "100.128.0.0:1",
            "172.15.255.255:1",
            "172.32.0.0:1",
            "223.255.255.255:1",
            "[2606:4700::1111]:443",
            "[2a00:1450::1]:80",
            "[2001:200::1]:80",
            "[::ffff:8.8.8.8]:53",
            "[64:ff9b::8.8.8.8]:53",
        ] {
            assert!(policy.allows(at(public)), "{public}");
        }
        for other in [
            "0.0.0.0:80",
            "0.1.2.3:80",
            "10.0.0.1:80",
            "100.64.0.1:80",
            "100.127.255.255:80",
            "127.0.0.1:80",
            "127.255.255.254:80",
            "169.254.169.254:80",
            "172.16.0.1:80",
            "172.31.255.255:80",
            "192.0.0.1:80",
            "192.0.2.1:80",
            "192.88.99.1:80",
            "192.168.1.1:80",
            "198.19.255.255:80",
            "198.51.100.7:80",
            "203.0.113.7:80",
            "224.0.0.1:80",
            "239.255.255.255:80",
            "240.0.0.1:80",
            "255.255.255.255:80",
            "[::]:80",
            "[::1]:80",
            "[::7f00:1]:80",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:10.0.0.1]:80",
            "[::ffff:100.64.0.1]:80",
            "[::ffff:169.254.169.254]:80",
            "[::ffff:224.0.0.1]:80",
            "[::ffff:192.0.2.1]:80",
            "[64:ff9b::10.0.0.1]:80",
            "[64:ff9b::127.0.0.1]:80",
            "[64:ff9b:1::1]:80",
            "[100::1]:80",
            "[2001::1]:80",
            "[2001:db8::1]:80",
            "[2002:7f00:1::]:80",
            "[3fff::1]:80",
            "[fc00::1]:80",
            "[fdff::1]:80",
            "[fe80::1]:80",
            "[febf::1]:80",
            "[fec0::1]:80",
            "[ff02::1]:80",
        ] {
            assert!(!policy.allows(at(other)), "{other}");
        }
    }

    #[test]
    fn the_most_special_rule_decides() {
        for (allow, deny, address, allowed) in [
            ("10.1.0.0/16", ":25", "10.1.2.3:25", false),
            ("10.1.0.0/16", ":25", "10.1.2.3:80", true),
            ("10.1.0.0/16:25", ":25", "10.1.2.3:25", true),
            ("10.1.0.0/16 10.1.2.3:25", "10.0.0.0/8:25", "10.1.2.3:25", true),
            ("10.1.0.0/16", "10.0.0.0/8:25", "10.1.2.3:25", false),
            (":443", "", "10.1.2.3:443", false),
            ("10.1.0.0/16", "", "10.1.2.3:80", true),
            ("10.1.0.0/16", "", "10.2.2.3:80", false),
            ("10.0.0.0/8", "", "10.2.2.3:80", true),
            ("10.0.0.0/8", "", "[::ffff:10.2.2.3]:80", true),
            ("10.0.0.0/8", "10.2.0.0/16", "10.2.2.3:80", false),
            ("10.0.0.0/8", "10.2.0.0/16", "10.3.2.3:80", true),
            ("10.0.0.0/8", "10.0.0.0/8", "10.3.2.3:80", false),
            ("10.0.0.0/8:443", "10.0.0.0/8", "10.3.2.3:443", true),
            ("10.0.0.0/8:443", "", "10.3.2.3:80", false),
            ("127.0.0.1", "", "127.0.0.1:80", true),
            ("127.0.0.1", "", "127.0.0.2:80", false),
            ("::1", "", "[::1]:80", true),
            ("[fd00::/8]:443", "", "[fd12::1]:443", true),
            ("[fd00::/8]:443", "", "[fd12::1]:80", false),
            // All networks together are less special than the networks that are not public.
            ("0.0.0.0/0", "", "192.168.0.1:80", false),
            ("", ":25", "8.8.8.8:25", false),
            ("", ":25", "8.8.8.8:80", true),
            (":443", "0.0.0.0/0 ::/0", "8.8.8.8:443", true),
            (":443", "0.0.0.0/0 ::/0", "8.8.8.8:80", false),
            (":443", "0.0.0.0/0 ::/0", "[2606:4700::1]:80", false),
            ("8.8.8.8", "8.0.0.0/8", "8.8.8.8:80", true),
            ("", "8.8.8.8", "[64:ff9b::808:808]:80", false),
        ] {
            let decided = policy(allow, deny).allows(at(address));
            assert_eq!(decided, allowed, "allow {allow}, deny {deny}: {address}");
        }
    }

    #[test]
    fn networks_are_read_and_shown() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.0.0.0/8:443", "10.0.0.0/8:443"),
            ("fd00::/8", "fd00::/8"),
            ("[fd00::/8]:443", "[fd00::/8]:443"),
            ("[::1]:443", "[::1/128]:443"),
            ("::1", "::1/128"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            (":25", ":25"),
        ] {
            let scope: Scope = text.parse().expect(text);
            assert_eq!(scope.to_string(), shown);
            assert_eq!(shown.parse(), Ok(scope), "{shown}");
        }
        for bad in [
            "",
            ":",
            "x",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::/129",
            "fd00::1/8",
            "10.0.0.0/8:",
            "10.0.0.0/8:x",
            "10.0.0.0/8:65536",
            "[10.0.0.0/8",
            "[fd00::/8]443",
            "[]:443",
            "example.org",
            "/8",
            "10/8",
        ] {
            assert!(bad.parse::<Scope>().is_err(), "{bad}");
        }
        let said = "10.0.0.1/8".parse::<Scope>().expect_err("a host");
        assert!(said.contains("10.0.0.0/8"), "{said}");
    }
}
