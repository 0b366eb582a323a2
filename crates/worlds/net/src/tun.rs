//! Makes TUN and TAP devices: this process reads the packets that the kernel sends into a device, and the
//! kernel receives the packets that this process writes.
//!
//! A TUN device is a point-to-point link for IP packets without a link-layer header and without ARP; a TAP
//! device carries Ethernet frames, and can be a port of a bridge. A device is not persistent: it disappears
//! when its descriptor is closed. See `Documentation/networking/tuntap.rst` of the
//! kernel.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use nix::errno::Errno;
use nix::libc;

use crate::Namespace;
use crate::syscalls::{self, Device};

/// The size of the header before each packet of a device with offload, in bytes: `struct virtio_net_hdr`.
pub const HEADER_BYTES: usize = 10;
/// The size of the largest IP packet, in bytes.
pub const PACKET_BYTES_MAX: usize = 65_535;
/// The length of the longest name of a device, in bytes.
const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;
/// The length of a device's queue, in packets. The kernel drops further packets and counts them
/// ([`Tun::overflowed`]). The queue has room for the whole window of a fast sender while a busy reader is
/// away: 3 MB of packets of 1,500 bytes.
pub const QUEUE_PACKETS: u32 = 2_000;
/// The number of bytes reserved for the statistics of all devices of a namespace: 128 for each device.
const STATISTICS_BYTES: usize = 65_536;

/// A TUN or TAP device that is up. Reading and writing never wait.
#[derive(Debug)]
pub struct Tun {
    file: File,
    /// `/proc/net/dev` of the device's namespace.
    statistics: File,
    name: String,
    mtu_bytes: u32,
    offload: bool,
}

fn refuse(error: Errno, sentence: String) -> io::Error {
    io::Error::new(io::Error::from(error).kind(), format!("{sentence}: {error}"))
}

fn check_name(name: &str) -> io::Result<()> {
    let bad = |c: char| c == '/' || c == '%' || c.is_whitespace() || !c.is_ascii_graphic();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(bad) || [".", ".."].contains(&name) {
        let sentence = format!("`{name}` can't name a device: 1 to {NAME_BYTES_MAX} plain characters");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    Ok(())
}

impl Tun {
    /// Makes the device `name` in a namespace, up, without addresses. It gets no IPv6 link-local address, so
    /// that the kernel sends nothing through it by itself.
    ///
    /// With `offload`, packets come with a `virtio_net_hdr` of [`HEADER_BYTES`] before them, are up to
    /// [`PACKET_BYTES_MAX`] large and have no checksums, as a network card with segmentation offload gets
    /// them. Packets that are written must have such a header, too. Without `offload`, no packet is larger
    /// than `mtu` bytes.
    ///
    /// # Errors
    /// Each error is a sentence: there is no `/dev/net/tun` or it may not be opened, `CAP_NET_ADMIN` is
    /// missing, the name is taken or invalid, or the MTU is not 68 to 65,535.
    pub fn new(namespace: &Namespace, name: &str, mtu: u32, offload: bool) -> io::Result<Self> {
        check_name(name)?;
        namespace.run(|| Self::here(name, mtu, false, offload))?
    }

    /// Makes the TAP device `name` in a namespace, up, without addresses, as [`Tun::new`] makes a TUN device.
    /// Frames are whole: segments are cut and checksums filled in before they come, and they are at most 14
    /// bytes larger than `mtu`.
    ///
    /// # Errors
    /// As [`Tun::new`].
    pub fn new_tap(namespace: &Namespace, name: &str, mtu: u32) -> io::Result<Self> {
        check_name(name)?;
        namespace.run(|| Self::here(name, mtu, true, false))?
    }

    /// Makes the device in the calling thread's namespace.
    fn here(name: &str, mtu: u32, tap: bool, offload: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun").map_err(|e| {
            let sentence = match e.kind() {
                io::ErrorKind::PermissionDenied => "may not be opened (run as root)",
                _ => "is missing (the kernel's module `tun`)",
            };
            io::Error::new(e.kind(), format!("TUN device {name}: /dev/net/tun {sentence}: {e}"))
        })?;
        syscalls::tun_attach(file.as_fd(), name, tap, offload).map_err(|e| {
            let sentence = match e {
                Errno::EPERM => "needs CAP_NET_ADMIN (run as root)",
                Errno::EBUSY => "there is such a device already",
                _ => "the kernel refuses it",
            };
            refuse(e, format!("TUN device {name}: {sentence}"))
        })?;
        if offload {
            syscalls::tun_offload(file.as_fd())
                .map_err(|e| refuse(e, format!("TUN device {name}: no offload")))?;
        }
        syscalls::set_device(name, &Device::Mtu(mtu))
            .map_err(|e| refuse(e, format!("TUN device {name}: no MTU of {mtu} bytes")))?;
        syscalls::set_device(name, &Device::Queue(QUEUE_PACKETS))
            .map_err(|e| refuse(e, format!("TUN device {name}: no queue of {QUEUE_PACKETS} packets")))?;
        // 1 is IN6_ADDR_GEN_MODE_NONE. A kernel without IPv6 has no such file and makes no such address.
        let mode = format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode");
        match std::fs::write(mode, "1") {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(io::Error::new(e.kind(), format!("TUN device {name}: addr_gen_mode: {e}")));
            }
            _ => {}
        }
        syscalls::set_device(name, &Device::Up)
            .map_err(|e| refuse(e, format!("TUN device {name}: stays down")))?;
        let statistics = File::open("/proc/thread-self/net/dev")?;
        Ok(Self { file, statistics, name: name.to_owned(), mtu_bytes: mtu, offload })
    }

    /// Returns the name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the MTU that the device was made with, in bytes.
    #[must_use]
    pub const fn mtu_bytes(&self) -> u32 {
        self.mtu_bytes
    }

    /// Returns whether packets have a header and may be larger than the MTU.
    #[must_use]
    pub const fn offload(&self) -> bool {
        self.offload
    }

    /// Takes the next packet that the kernel sent. Returns its length in bytes, header included. Bytes that
    /// do not fit into `buffer` are cut off.
    ///
    /// # Errors
    /// `WouldBlock` if there is no packet.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Hands a packet to the kernel. When this returns, the packet has passed the stack, up to the socket.
    ///
    /// # Errors
    /// `EIO` if the device is down, `EINVAL` if `packet` is no IP packet, `ENOBUFS` or `ENOMEM`.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }

    /// Returns the number of packets that the kernel dropped because the queue was full (`tx_dropped`).
    ///
    /// # Errors
    /// If the statistics cannot be read; `NotFound` if the device has been renamed or moved elsewhere.
    pub fn overflowed(&self) -> io::Result<u64> {
        let mut text = vec![0; STATISTICS_BYTES];
        let mut len = 0;
        // One read returns a page at most.
        while let more @ 1.. = self.statistics.read_at(&mut text[len..], len as u64)? {
            len += more;
        }
        let text = String::from_utf8_lossy(&text[..len]);
        let mine =
            text.lines().find_map(|line| line.trim_start().strip_prefix(&self.name)?.strip_prefix(':'));
        // Eight columns count received packets; then follow bytes, packets, errors and drops of sent packets.
        let dropped = mine.and_then(|line| line.split_ascii_whitespace().nth(11)?.parse().ok());
        dropped
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no statistics of {}", self.name)))
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
