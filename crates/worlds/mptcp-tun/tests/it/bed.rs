//! A namespace whose kernel is one end; our host behind TUN devices is the other.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use anabranch_mptcp::Config;
use anabranch_mptcp_tun::{TunHost, TunLink};
use anabranch_net::netlink::{Endpoint, EndpointFlags, Limits, PathManager};
use anabranch_net::{Namespace, testing};
use socket2::{Domain, Protocol, Socket, Type};

pub(crate) const PORT: u16 = 5000;

pub(crate) struct Bed {
    pub(crate) namespace: Namespace,
}

/// The kernel's address on link `no`, and ours.
pub(crate) fn kernel_address(no: u8, v6: bool) -> IpAddr {
    if v6 { format!("fd77:{no}::1").parse().unwrap() } else { IpAddr::from([10, 77, no, 1]) }
}
pub(crate) fn own_address(no: u8, v6: bool) -> IpAddr {
    if v6 { format!("fd77:{no}::2").parse().unwrap() } else { IpAddr::from([10, 77, no, 2]) }
}

impl Bed {
    /// Returns `None`, counted as a skip, if the test has not the rights to make a namespace.
    pub(crate) fn new() -> Option<Self> {
        testing::side_by_side();
        if !std::path::Path::new("/dev/net/tun").exists() {
            testing::skip("this kernel has no TUN devices");
            return None;
        }
        let namespace = Namespace::new().map_err(testing::refused).ok()?;
        if namespace.sysctl("net.mptcp.enabled", "1").is_err() {
            testing::skip("this kernel has no MPTCP");
            return None;
        }
        namespace
            .run(|| PathManager::open()?.set_limits(Limits { subflows: 8, add_addr_accepted: 8 }))
            .unwrap()
            .unwrap();
        Some(Self { namespace })
    }

    pub(crate) fn checksums(&self) {
        self.namespace.sysctl("net.mptcp.checksum_enabled", "1").unwrap();
    }

    /// Has the kernel announce its address on link `no`.
    pub(crate) fn announce(&self, no: u8) {
        let endpoint =
            Endpoint { flags: EndpointFlags::SIGNAL, ..Endpoint::subflow(kernel_address(no, false), None) };
        self.namespace.run(|| PathManager::open()?.add_endpoint(&endpoint)).unwrap().unwrap();
    }

    /// Runs `work` on the kernel's endpoint for its address on link `no`.
    fn endpoint(
        &self,
        no: u8,
        work: impl Fn(&PathManager, &Endpoint) -> anabranch_net::netlink::Result<()> + Sync,
    ) {
        let find = || {
            let manager = PathManager::open()?;
            let all = manager.endpoints()?;
            let of_link = all.iter().find(|endpoint| endpoint.ip == kernel_address(no, false));
            work(&manager, of_link.expect("it was announced"))
        };
        self.namespace.run(find).unwrap().unwrap();
    }

    /// Removes the kernel's address on link `no`.
    pub(crate) fn retract(&self, no: u8) {
        self.endpoint(no, |manager, endpoint| manager.del_endpoint(endpoint));
    }

    /// Sets whether the kernel uses link `no` as a backup only.
    pub(crate) fn set_backup(&self, no: u8, backup: bool) {
        let flags = if backup { EndpointFlags::BACKUP } else { EndpointFlags::NONE };
        self.endpoint(no, |manager, endpoint| manager.set_flags(endpoint, EndpointFlags::SIGNAL | flags));
    }

    pub(crate) fn link(&self, no: u8, v6: bool) -> io::Result<TunLink> {
        let (own, kernel) = (own_address(no, v6), kernel_address(no, v6));
        let prefix = if v6 { 64 } else { 24 };
        TunLink::new(&self.namespace, &format!("tun{no}"), own, kernel, prefix, 1500)
    }

    pub(crate) fn host(&self, config: Config, links: u8, v6: bool, announce: bool) -> Option<TunHost> {
        let links: io::Result<Vec<_>> = (1..=links).map(|no| self.link(no, v6)).collect();
        let links = links.map_err(testing::refused_device).ok()?;
        Some(TunHost::new(config, links, announce).unwrap())
    }

    /// Returns a socket of the kernel, in the namespace.
    pub(crate) fn socket(&self, multipath: bool, v6: bool) -> Socket {
        let protocol = if multipath { Protocol::MPTCP } else { Protocol::TCP };
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        self.namespace.run(|| Socket::new(domain, Type::STREAM, Some(protocol))).unwrap().unwrap()
    }

    pub(crate) fn listener(&self, multipath: bool, v6: bool) -> Socket {
        let socket = self.socket(multipath, v6);
        let any: IpAddr = if v6 { "::".parse().unwrap() } else { "0.0.0.0".parse().unwrap() };
        socket.bind(&SocketAddr::new(any, PORT).into()).unwrap();
        socket.listen(8).unwrap();
        socket
    }

    /// Returns the kernel's counters of Multipath TCP that are not zero.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        let text = self.namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"));
        let text = text.unwrap().unwrap();
        let mut rows = text.lines().filter_map(|line| line.strip_prefix("MPTcpExt: "));
        let (names, values) = (rows.next().unwrap_or(""), rows.next().unwrap_or(""));
        let values = values.split(' ').map(|value| value.parse().unwrap());
        let all = names.split(' ').map(str::to_owned).zip(values);
        all.filter(|(_, value)| *value > 0).collect()
    }

    /// Panics if the kernel has counted a fallback, a wrong HMAC or checksum, or data without a mapping.
    pub(crate) fn assert_clean(&self) {
        let bad = ["Fallback", "HMac", "Csum", "MPFail", "Infinite", "DSSNotMatching", "DSSNoMatchTCP"];
        let counters = self.counters();
        let found: Vec<_> =
            counters.iter().filter(|(name, _)| bad.iter().any(|b| name.contains(b))).collect();
        assert!(found.is_empty(), "{found:?} of {counters:?}");
    }
}
