//! Notices changes of the host's interfaces, addresses and routes.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::{AsFd as _, AsRawFd as _};

use anabranch_algo::{Span, Time};

use crate::interface::{Interface, interfaces};

/// The time between two reads of the interfaces where the kernel reports no changes.
const POLL_INTERVAL: Span = Span::from_secs(1);

/// The largest number of messages taken in one call; the others make the descriptor readable again.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MESSAGES_MAX: usize = 256;

/// Reports when it is worth asking [`interfaces`] and [`usable_egresses`](crate::usable_egresses) again.
///
/// On Linux the kernel reports changes over rtnetlink (RFC 3549): wait for [`fd`](Self::fd). Where that
/// fails, the list is read once a second: wait until [`deadline`](Self::deadline). Callers do both and need
/// not know which applies.
#[derive(Debug)]
pub struct NetworkMonitor {
    netlink: Option<OwnedFd>,
    last_interfaces: Vec<Interface>,
    next_read: Time,
}

impl NetworkMonitor {
    /// Starts to monitor: changes from now on are reported.
    ///
    /// # Errors
    /// If neither method works, because the interfaces cannot be read.
    pub fn new() -> io::Result<Self> {
        let netlink = subscribe().ok();
        let last_interfaces = if netlink.is_some() { Vec::new() } else { interfaces()? };
        let next_read = if netlink.is_some() { Time::NEVER } else { Time::ZERO };
        Ok(Self { netlink, last_interfaces, next_read })
    }

    /// Returns the descriptor that becomes readable on a change, if the kernel reports changes.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.netlink.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// Returns the time at which to call [`changed`](Self::changed) even if nothing became readable.
    #[must_use]
    pub const fn deadline(&self) -> Time {
        self.next_read
    }

    /// Returns whether the network may have changed since the last call. All times `now` must be of one
    /// clock.
    pub fn changed(&mut self, now: Time) -> bool {
        if let Some(netlink) = &self.netlink {
            return drain(netlink);
        }
        if now < self.next_read {
            return false;
        }
        self.next_read = now + POLL_INTERVAL;
        // If the interfaces cannot be read now, they are compared next time.
        let Ok(found) = interfaces() else { return false };
        let changed = found != self.last_interfaces;
        self.last_interfaces = found;
        changed
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn subscribe() -> io::Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
    // linux/rtnetlink.h: RTMGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE. Routes are
    // included, because an address is of no use until its default route has come.
    const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let netlink = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(netlink.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
    Ok(netlink)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn drain(netlink: &OwnedFd) -> bool {
    use nix::errno::Errno;
    use nix::sys::socket::{MsgFlags, recv};
    let mut any = false;
    let mut message = [0; 64];
    for _ in 0..MESSAGES_MAX {
        // The arrival of a message is enough; the rest of the message is cut off.
        match recv(netlink.as_fd().as_raw_fd(), &mut message, MsgFlags::empty()) {
            // ENOBUFS: the kernel had more messages than fit, so something changed.
            Ok(1..) | Err(Errno::ENOBUFS) => any = true,
            Err(Errno::EINTR) => {}
            _ => break,
        }
    }
    any
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn subscribe() -> io::Result<OwnedFd> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn drain(_netlink: &OwnedFd) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_by_itself_when_reread() {
        let mut monitor =
            NetworkMonitor { netlink: None, last_interfaces: interfaces().unwrap(), next_read: Time::ZERO };
        assert!(monitor.fd().is_none());
        let _ = monitor.changed(Time::ZERO);
        assert_eq!(monitor.deadline(), Time::ZERO + POLL_INTERVAL);
        monitor.last_interfaces.clear();
        assert!(!monitor.changed(Time::from_nanos(1)), "not yet due");
        assert!(monitor.changed(Time::ZERO + POLL_INTERVAL));
    }
}
