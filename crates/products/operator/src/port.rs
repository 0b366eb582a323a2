//! The devices between which a host carries functions: TAP devices that it makes, each of which can be put
//! into a bridge. They go when the host ends.

use std::str::FromStr;

use anabranch_net::netlink::Netlink;
use anabranch_net::{Namespace, Tun};

use crate::error::{Error, Result};
use crate::spec::Place;

/// The MTU of the devices, bytes.
pub const MTU_BYTES: u32 = 1_500;

/// A device as a user names it: `NAME`, `NAME@BRIDGE`, or `NAME=ADDRESS/PREFIX` for an address of this host
/// behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the device.
    pub name: String,
    /// The bridge of which it becomes a port.
    pub bridge: Option<String>,
    /// The address that this host has there.
    pub address: Option<Place>,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let named = |name: &str, bridge: Option<&str>, address| {
            let is_name = |name: &str| !name.is_empty() && !name.contains(['@', '=', '/']);
            match is_name(name) && bridge.is_none_or(is_name) {
                true => Ok(Self { name: name.to_owned(), bridge: bridge.map(str::to_owned), address }),
                false => Err(format!(
                    "`{}` is no device: NAME, NAME@BRIDGE or NAME=ADDRESS/PREFIX",
                    text.escape_default()
                )),
            }
        };
        match (text.split_once('@'), text.split_once('=')) {
            (Some((name, bridge)), _) => named(name, Some(bridge), None),
            (None, Some((name, address))) => named(name, None, Some(address.parse()?)),
            (None, None) => named(text, None, None),
        }
    }
}

/// Makes a device in a namespace.
///
/// # Errors
/// `Kernel` if the kernel does not allow it, the name is taken, or there is no such bridge.
pub fn make(namespace: &Namespace, wanted: &Wanted) -> Result<Tun> {
    let failed = |e: std::io::Error| Error::Kernel(e.to_string());
    let tun = Tun::new_tap(namespace, &wanted.name, MTU_BYTES).map_err(failed)?;
    let set_up = || {
        let netlink = Netlink::open()?;
        let index = netlink.index(&wanted.name)?;
        if let Some(bridge) = &wanted.bridge {
            netlink.set_master(index, Some(netlink.index(bridge)?))?;
        }
        if let Some(place) = wanted.address {
            netlink.add_address(index, place.address.into(), place.prefix)?;
        }
        Ok(())
    };
    let done = namespace.run(set_up).map_err(failed)?;
    done.map_err(|e: anabranch_net::netlink::Error| Error::Kernel(e.to_string()))?;
    Ok(tun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read() {
        let wanted = |text: &str| text.parse::<Wanted>();
        assert_eq!(wanted("a@b").unwrap().bridge.as_deref(), Some("b"));
        assert_eq!(wanted("a=10.0.0.1/8").unwrap().address, Some("10.0.0.1/8".parse().unwrap()));
        assert_eq!(wanted("a").unwrap().name, "a");
        for wrong in ["", "@b", "a@", "a=", "a=10.0.0.1", "a@b=10.0.0.1/8", "a/b"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }
}
