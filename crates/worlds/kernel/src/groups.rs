//! Rules for which subflows share a bottleneck.
//!
//! A coupled controller runs over the subflows of a connection that are in one group; subflows in different
//! groups grow like separate connections. By default all subflows of a connection are in group 0, which may
//! take too little but harms nobody else. A rule puts the subflows of a local address, an interface or a
//! connection into another group. It applies in one network namespace, to every loaded controller, within a
//! round trip. If several rules match, the connection's comes first, then the address's.

use std::fmt;
#[cfg(any(feature = "ebpf", test))]
use std::mem::offset_of;
use std::net::IpAddr;

use anabranch_net::netlink::Netlink;

use crate::Result;
#[cfg(any(feature = "ebpf", test))]
use crate::bpf_abi::{AnbRule, GROUP_APART, RULE_ADDRESS, RULE_ALL, RULE_CONNECTION, RULE_INTERFACE};
use crate::error::refused;

/// The subflows that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Selector {
    /// Subflows from this local address.
    Address(IpAddr),
    /// Subflows over the interface with this index.
    Interface(u32),
    /// All subflows of the connection with this local token (`linux/mptcp.h`).
    Connection(u32),
    /// All connections that begin from now on, plain TCP too, coupled like the subflows of one connection,
    /// eight at most. This includes connections in other namespaces with such a rule for the same group.
    All,
}

/// The group that a rule puts its subflows into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// The group with this number, below [`GROUP_MAX`].
    Shared(u32),
    /// A separate group for each subflow; only for a rule about a connection.
    Apart,
}

/// The bound of group numbers: all are below it.
pub const GROUP_MAX: u32 = 1 << 31;
#[cfg(any(feature = "ebpf", test))]
const KEY_BYTES: usize = size_of::<AnbRule>();
#[cfg(any(feature = "ebpf", test))]
const SELECTOR_BYTES: usize = 16;

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(number) => write!(f, "{number}"),
            Self::Apart => write!(f, "apart"),
        }
    }
}

/// A rule that puts subflows into a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRule {
    /// The cookie of the network namespace in which the rule holds.
    pub netns: u64,
    /// The subflows that the rule applies to.
    pub selector: Selector,
    /// The group that the rule puts them into.
    pub group: Group,
}

/// Returns the cookie of the calling thread's network namespace, as the eBPF programs see it.
///
/// # Errors
/// If the kernel has no cookies of namespaces (before Linux 5.14).
pub fn netns() -> Result<u64> {
    let cookie = Netlink::open().and_then(|netlink| netlink.namespace_cookie());
    cookie.map_err(|e| refused("cannot tell the network namespace", &e.into()))
}

/// Encodes the key of a rule in the map of the eBPF programs.
#[cfg(any(feature = "ebpf", test))]
fn key(netns: u64, selector: Selector) -> [u8; KEY_BYTES] {
    let (kind, what) = match selector {
        Selector::Address(IpAddr::V4(ip)) => (RULE_ADDRESS, zero_padded(&ip.octets())),
        Selector::Address(IpAddr::V6(ip)) => (RULE_ADDRESS, ip.octets()),
        Selector::Interface(index) => (RULE_INTERFACE, zero_padded(&index.to_ne_bytes())),
        Selector::Connection(token) => (RULE_CONNECTION, zero_padded(&token.to_ne_bytes())),
        Selector::All => (RULE_ALL, [0; SELECTOR_BYTES]),
    };
    let mut key = [0; KEY_BYTES];
    let mut put = |at: usize, bytes: &[u8]| key[at..at + bytes.len()].copy_from_slice(bytes);
    put(offset_of!(AnbRule, netns), &netns.to_ne_bytes());
    put(offset_of!(AnbRule, kind), &kind.to_ne_bytes());
    put(offset_of!(AnbRule, selector), &what);
    key
}

#[cfg(any(feature = "ebpf", test))]
fn zero_padded(bytes: &[u8; 4]) -> [u8; SELECTOR_BYTES] {
    let mut all = [0; SELECTOR_BYTES];
    all[..4].copy_from_slice(bytes);
    all
}

/// Decodes a rule from its key and its value in the map; `None` if they are invalid.
#[cfg(any(feature = "ebpf", test))]
fn rule(key: &[u8], value: &[u8]) -> Option<GroupRule> {
    let key: &[u8; KEY_BYTES] = key.try_into().ok()?;
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| key[at + i]));
    let netns = u64::from_ne_bytes(std::array::from_fn(|i| key[offset_of!(AnbRule, netns) + i]));
    let what = offset_of!(AnbRule, selector);
    let octets: [u8; SELECTOR_BYTES] = std::array::from_fn(|i| key[what + i]);
    let selector = match word(offset_of!(AnbRule, kind)) {
        // An IPv4 address leaves the rest zero; no IPv6 host has such an address (RFC 4291 section 2.5.5).
        RULE_ADDRESS if octets[4..] == [0; 12] => {
            Selector::Address(IpAddr::from([octets[0], octets[1], octets[2], octets[3]]))
        }
        RULE_ADDRESS => Selector::Address(IpAddr::from(octets)),
        RULE_INTERFACE => Selector::Interface(word(what)),
        RULE_CONNECTION => Selector::Connection(word(what)),
        RULE_ALL => Selector::All,
        _ => return None,
    };
    let group = match u32::from_ne_bytes(value.try_into().ok()?) {
        GROUP_APART => Group::Apart,
        number => Group::Shared(number),
    };
    Some(GroupRule { netns, selector, group })
}

#[cfg(feature = "ebpf")]
mod map {
    use std::path::Path;

    use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

    use super::{GROUP_APART, Group, GroupRule, Selector, key, netns, rule};
    use crate::controllers::PIN_DIR;
    use crate::error::refused;
    use crate::{Error, Result};

    fn open() -> Result<MapHandle> {
        let path = Path::new(PIN_DIR).join("groups");
        let found = crate::bpf_object::open_pinned(&path).map_err(|e| match e {
            Error::Permission(_) => {
                let path = path.display();
                Error::Permission(format!("cannot open the groups, which the kernel keeps ({path})"))
            }
            other => other,
        })?;
        found.ok_or_else(|| {
            Error::Refused("no controller is loaded: anabranch kernel load cubic-coupled".into())
        })
    }

    fn map_error(e: &libbpf_rs::Error) -> Error {
        refused("cannot change the groups", &std::io::Error::other(e.to_string()))
    }

    /// Adds or replaces a rule, in the calling thread's network namespace.
    ///
    /// # Errors
    /// If no controller is loaded, or there are 1,024 rules.
    pub fn set(selector: Selector, group: Group) -> Result<()> {
        let value = match group {
            Group::Shared(number) => number,
            Group::Apart => GROUP_APART,
        };
        let flags = MapFlags::ANY;
        open()?.update(&key(netns()?, selector), &value.to_ne_bytes(), flags).map_err(|e| map_error(&e))
    }

    /// Removes a rule, if there is one.
    ///
    /// # Errors
    /// If no controller is loaded.
    pub fn clear(selector: Selector) -> Result<()> {
        match open()?.delete(&key(netns()?, selector)) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => Err(map_error(&e)),
            _ => Ok(()),
        }
    }

    /// Returns the rules of all network namespaces.
    ///
    /// # Errors
    /// If no controller is loaded.
    pub fn list() -> Result<Vec<GroupRule>> {
        let map = open()?;
        let pairs = map.keys().map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).map_err(|e| map_error(&e))?;
            Ok(value.and_then(|value| rule(&key, &value)))
        });
        let mut rules = pairs.filter_map(Result::transpose).collect::<Result<Vec<GroupRule>>>()?;
        rules.sort_by_key(|rule| (rule.netns, rule.selector));
        Ok(rules)
    }
}
#[cfg(feature = "ebpf")]
pub use map::{clear, list, set};

#[cfg(not(feature = "ebpf"))]
mod none {
    use super::{Group, GroupRule, Selector};
    use crate::{Error, Result};

    /// Adds or replaces a rule.
    ///
    /// # Errors
    /// Always: this build has no eBPF programs.
    pub fn set(_: Selector, _: Group) -> Result<()> {
        Err(Error::NotBuilt)
    }
    /// Removes a rule.
    ///
    /// # Errors
    /// Always: this build has no eBPF programs.
    pub fn clear(_: Selector) -> Result<()> {
        Err(Error::NotBuilt)
    }
    /// Lists the rules.
    ///
    /// # Errors
    /// Always: this build has no eBPF programs.
    pub fn list() -> Result<Vec<GroupRule>> {
        Err(Error::NotBuilt)
    }
}
#[cfg(not(feature = "ebpf"))]
pub use none::{clear, list, set};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_there_and_back() {
        let addresses = ["10.1.2.3", "::1", "2001:db8::1"].map(|ip| ip.parse().expect("an address"));
        let selectors = addresses.map(Selector::Address).into_iter();
        for selector in
            selectors.chain([Selector::Interface(7), Selector::Connection(u32::MAX), Selector::All])
        {
            let value = 5_u32.to_ne_bytes();
            let want = GroupRule { netns: 9, selector, group: Group::Shared(5) };
            assert_eq!(rule(&key(9, selector), &value), Some(want));
            assert_eq!(rule(&key(9, selector), &[]), None);
        }
        assert_eq!(rule(&[0; KEY_BYTES], &[0; 4]), None);
        let apart = rule(&key(1, Selector::Connection(1)), &GROUP_APART.to_ne_bytes()).expect("a rule");
        assert_eq!(apart.group, Group::Apart);
    }
}
