//! Finds the uplink of a local end: the line by which its packets leave this host.
//!
//! An interface of hardware is a line, and so is one end of a virtual cable: another host is behind it, or
//! could be. An interface on top of another (a VLAN, a macvlan) leaves by the line of the lower interface. A
//! port (of a bridge, of a bond) shares the line of its master.
//!
//! Some uplinks are unknown. A tunnel leaves by a line that the routing tables choose, perhaps another line
//! for each packet. Loopback leaves by no line, and kinds of interfaces that are not listed here may leave by
//! any. But if a network namespace has no line at all, each of its TUN devices is a line, because the wire of
//! the device is a process elsewhere. Examples are the devices of `anabranch lab up` and the device of a
//! container without root.

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::collections::BTreeSet;

use crate::Egress;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::interface::interfaces;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::netlink::{Link, Netlink};

/// The kinds of interfaces that are no hardware but count as lines.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LINES: [&str; 5] = ["bond", "bridge", "team", "veth", "wwan"];
/// The kinds of interfaces that leave by another interface of this host.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LAYERS: [&str; 6] = ["ipvlan", "ipvtap", "macvlan", "macvtap", "rmnet", "vlan"];
/// `ARPHRD_ETHER`, `ARPHRD_INFINIBAND`, `ARPHRD_RAWIP` and `ARPHRD_NONE` (`linux/if_arp.h`): the frame
/// formats of hardware, modems included. Tunnels have other formats.
#[cfg(any(target_os = "linux", target_os = "android"))]
const HARDWARE: [u16; 4] = [1, 32, 519, 0xFFFE];

/// Returns the number of a local end's uplink: ends with the same number leave this host by one line. Returns
/// `None` if the uplink is unknown: for a tunnel, for loopback, where the kernel picks the interface, and on
/// systems that do not report it.
#[must_use]
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn uplink_of(via: &Egress) -> Option<u32> {
    let links = Netlink::open().ok()?.links().ok()?;
    let index = match (via.device(), via.address()) {
        (Some(device), _) => links.iter().find(|link| link.name == device)?.index,
        (None, Some(address)) => interfaces().ok()?.iter().find(|i| i.addresses.contains(&address))?.index,
        (None, None) => return None,
    };
    line(&links, index)
}

/// Returns `None`, because this system does not report uplinks.
#[must_use]
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn uplink_of(_via: &Egress) -> Option<u32> {
    None
}

/// Returns the smallest index of the interfaces that share the line of interface `index`, if it leaves by a
/// line.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn line(links: &[Link], index: u32) -> Option<u32> {
    let at = |index: u32| links.iter().find(|link| link.index == index);
    let kind = |link: &Link, kinds: &[&str]| link.kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
    // Go down to the line. Layers form no circle, but the list may mix several moments, so the steps are
    // limited.
    let mut link = at(index)?;
    for _ in links {
        if !kind(link, &LAYERS) {
            break;
        }
        link = at(link.parent?)?;
    }
    let is_line = |link: &Link| {
        let is_hardware = link.kind.is_none() && !link.loopback && HARDWARE.contains(&link.hardware);
        is_hardware || kind(link, &LINES)
    };
    if !is_line(link) && (!kind(link, &["tun"]) || links.iter().any(is_line)) {
        return None;
    }
    // Collect all interfaces that share the line, up and down, until none is added.
    let below = |link: &Link| {
        let parent = link.parent.filter(|_| kind(link, &LAYERS));
        let master = link.master.filter(|master| at(*master).is_some_and(|master| kind(master, &LINES)));
        [parent, master].into_iter().flatten()
    };
    let mut shared = BTreeSet::from([link.index]);
    loop {
        let before = shared.len();
        for link in links {
            for other in below(link) {
                if shared.contains(&other) || shared.contains(&link.index) {
                    shared.extend([other, link.index]);
                }
            }
        }
        if shared.len() == before {
            return shared.first().copied();
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, kind: Option<&str>) -> Link {
        let (name, kind) = (format!("if{index}"), kind.map(str::to_owned));
        Link { index, name, kind, hardware: 1, ..Link::default() }
    }

    #[test]
    fn hardware_and_cables_are_lines_of_their_own() {
        let links = [link(1, None), link(2, None), link(3, Some("veth")), link(4, Some("wwan"))];
        assert_eq!([1, 2, 3, 4].map(|index| line(&links, index)), [1, 2, 3, 4].map(Some));
        assert_eq!(line(&links, 9), None);
        // The kernel reports the other end of a virtual cable as the parent.
        let cable = Link { parent: Some(1), ..link(3, Some("veth")) };
        assert_eq!(line(&[link(1, None), cable], 3), Some(3));
    }

    #[test]
    fn of_loopback_tunnels_and_what_is_not_known_there_is_none() {
        let tunnels = ["tun", "wireguard", "ipip", "gre", "sit", "vxlan", "xfrm", "ppp", "dummy", "new"];
        for kind in tunnels {
            let over = Link { parent: Some(2), ..link(1, Some(kind)) };
            assert_eq!(line(&[over, link(2, None)], 1), None, "{kind}");
        }
        assert_eq!(line(&[Link { loopback: true, ..link(1, None) }], 1), None);
        // An old kernel reports ARPHRD_TUNNEL and no kind.
        assert_eq!(line(&[Link { hardware: 768, ..link(1, None) }], 1), None);
    }

    #[test]
    fn a_device_whose_wire_is_a_process_is_a_line_where_there_is_no_other() {
        let lo = || Link { loopback: true, ..link(1, None) };
        let links = [lo(), link(2, Some("tun")), link(3, Some("tun")), link(4, Some("wireguard"))];
        assert_eq!([1, 2, 3, 4].map(|index| line(&links, index)), [None, Some(2), Some(3), None]);
        let links = [lo(), link(2, Some("tun")), link(3, Some("tun")), link(4, None)];
        assert_eq!([2, 3, 4].map(|index| line(&links, index)), [None, None, Some(4)]);
    }

    #[test]
    fn what_is_on_top_of_a_line_shares_it() {
        let vlan = |index, parent| Link { parent: Some(parent), ..link(index, Some("vlan")) };
        let port = |link: Link, master| Link { master: Some(master), ..link };
        let links = [link(1, None), vlan(2, 1), vlan(3, 2), link(4, None)];
        assert_eq!([1, 2, 3, 4].map(|index| line(&links, index)), [1, 1, 1, 4].map(Some));
        // The parent is in another namespace, or is a tunnel.
        let (lost, of_tunnel) = (link(2, Some("macvlan")), vlan(3, 4));
        let links = [link(1, None), lost, of_tunnel, link(4, Some("vxlan"))];
        assert_eq!([2, 3].map(|index| line(&links, index)), [None, None]);
        // This is a bridge over one VLAN of a line, beside another VLAN of that line.
        let bridge = link(5, Some("bridge"));
        let links = [link(1, None), port(vlan(2, 1), 5), vlan(3, 1), link(4, None), bridge];
        assert_eq!([1, 3, 4, 5].map(|index| line(&links, index)), [1, 1, 4, 1].map(Some));
        // Two lines in one VRF stay two lines.
        let vrf = link(5, Some("vrf"));
        let links = [port(link(1, None), 5), port(link(2, None), 5), vrf];
        assert_eq!([1, 2].map(|index| line(&links, index)), [Some(1), Some(2)]);
    }

    #[test]
    fn this_host_has_no_uplink_by_loopback() {
        assert_eq!(uplink_of(&Egress::of_device("lo")), None);
        assert_eq!(uplink_of(&Egress::of_address([127, 0, 0, 1].into())), None);
        assert_eq!(uplink_of(&Egress::any()), None);
    }
}
