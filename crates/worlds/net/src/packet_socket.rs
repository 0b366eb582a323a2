//! A socket for the frames of one device (packet(7)): what the device receives can be read, and what is
//! written leaves by it, past the kernel's stack.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use crate::syscalls;

/// A socket for the frames of one device. Reading and writing never wait.
#[derive(Debug)]
pub struct PacketSocket(File);

impl PacketSocket {
    /// Opens a socket for the device of this index, in the calling thread's namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`; another error if there is no such device.
    pub fn open(device: u32) -> io::Result<Self> {
        let fd = syscalls::packet_socket(device).map_err(|e| {
            let error = io::Error::from(e);
            io::Error::new(error.kind(), format!("no socket for the frames of device {device}: {error}"))
        })?;
        Ok(Self(fd.into()))
    }

    /// Takes the next frame. Returns its length; bytes that do not fit into `buffer` are cut off.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Sends a frame by the device.
    ///
    /// # Errors
    /// `WouldBlock` or `ENOBUFS` if there is no room now; `EINVAL` if it is no frame.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(drop)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Netlink;
    use crate::{Namespace, Tun};

    #[test]
    fn frames_go_both_ways_past_the_stack() {
        let space = match Namespace::new() {
            Ok(space) => space,
            Err(e) => return crate::testing::refused(e),
        };
        let tap = match Tun::new_tap(&space, "tap0", 1_500) {
            Ok(tap) => tap,
            Err(e) => return crate::testing::refused_device(e),
        };
        let open = || {
            let index = Netlink::open().unwrap().index("tap0").unwrap();
            PacketSocket::open(index).unwrap()
        };
        let socket = space.run(open).unwrap();
        let frame = [&[2; 12][..], &[0x88, 0xb5], &[7; 46]].concat();
        socket.write(&frame).unwrap();
        let mut buffer = [0; 2_000];
        let len = tap.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], frame);
        tap.write(&frame).unwrap();
        let len = socket.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], frame);
        assert_eq!(socket.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
