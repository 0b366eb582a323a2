//! A TUN device with an address at either end.

use std::io;
use std::net::IpAddr;

use anabranch_net::netlink::Netlink;
use anabranch_net::{Namespace, Tun};

/// A TUN device. The kernel has one address on it; the [`TunHost`](crate::TunHost) behind the device has
/// another.
#[derive(Debug)]
pub struct TunLink {
    pub(crate) tun: Tun,
    pub(crate) address: IpAddr,
    /// Whether the link drops all packets.
    pub(crate) is_silent: bool,
}

impl TunLink {
    /// Makes the device `name` in a namespace. The kernel gets the address `kernel` with a prefix of `prefix`
    /// bits, which makes `address` its neighbour.
    ///
    /// # Errors
    /// If [`Tun::new`] fails, or if the kernel refuses the address. Each error is a sentence.
    pub fn new(
        namespace: &Namespace,
        name: &str,
        address: IpAddr,
        kernel: IpAddr,
        prefix: u8,
        mtu_bytes: u16,
    ) -> io::Result<Self> {
        let tun = Tun::new(namespace, name, u32::from(mtu_bytes), false)?;
        namespace.run(|| {
            let netlink = Netlink::open().map_err(io::Error::other)?;
            let device = netlink.index(name).map_err(io::Error::other)?;
            netlink.add_address(device, kernel, prefix).map_err(io::Error::other)
        })??;
        Ok(Self { tun, address, is_silent: false })
    }

    /// Returns the address of the host behind the device.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }
}
