//! Notice that the host's interfaces, addresses or routes changed.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::{AsFd as _, AsRawFd as _};

use algo::{Span, Time};

use crate::iface::{Interface, interfaces};

/// How often the list is read again where the kernel tells nothing.
const REREAD: Span = Span::from_secs(1);

/// Messages taken in one call; the rest make the descriptor readable again.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MESSAGES_MAX: usize = 256;

/// Tells when it is worth asking [`interfaces`] and [`usable_for`](crate::usable_for) again.
///
/// On Linux the kernel tells over rtnetlink (RFC 3549): wait for [`fd`](Self::fd). Where that cannot be had,
/// the list is read once a second: wait until [`deadline`](Self::deadline). Callers do both and need not know
/// which.
#[derive(Debug)]
pub struct Watch {
    netlink: Option<OwnedFd>,
    seen: Vec<Interface>,
    again: Time,
}

impl Watch {
    /// Starts to watch; changes from now on are told.
    ///
    /// # Errors
    /// If neither way works: the interfaces cannot be read.
    pub fn new() -> io::Result<Self> {
        let netlink = subscribe().ok();
        let seen = if netlink.is_some() { Vec::new() } else { interfaces()? };
        let again = if netlink.is_some() { Time::NEVER } else { Time::ZERO };
        Ok(Self { netlink, seen, again })
    }

    /// What becomes readable on a change.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.netlink.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// When to call [`changed`](Self::changed) even if nothing became readable.
    #[must_use]
    pub const fn deadline(&self) -> Time {
        self.again
    }

    /// Whether something may have changed since the last call. `now` must be a time of one clock.
    pub fn changed(&mut self, now: Time) -> bool {
        if let Some(netlink) = &self.netlink {
            return drain(netlink);
        }
        if now < self.again {
            return false;
        }
        self.again = now + REREAD;
        // What cannot be read now is compared next time.
        let Ok(found) = interfaces() else { return false };
        let changed = found != self.seen;
        self.seen = found;
        changed
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn subscribe() -> io::Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
    // linux/rtnetlink.h: RTMGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE. Routes too: an
    // address is of no use until its default route has come.
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
        // That something came says enough; the rest of the message is cut off.
        match recv(netlink.as_fd().as_raw_fd(), &mut message, MsgFlags::empty()) {
            // ENOBUFS: the kernel had more to tell than fits, so something changed.
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
        let mut watch = Watch { netlink: None, seen: interfaces().unwrap(), again: Time::ZERO };
        assert!(watch.fd().is_none());
        let _ = watch.changed(Time::ZERO);
        assert_eq!(watch.deadline(), Time::ZERO + REREAD);
        watch.seen.clear();
        assert!(!watch.changed(Time::from_nanos(1)), "not yet due");
        assert!(watch.changed(Time::ZERO + REREAD));
    }
}
