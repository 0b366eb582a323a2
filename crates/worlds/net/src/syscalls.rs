//! Makes the system calls that only unsafe code can make, each behind a safe function.
#![expect(unsafe_code, reason = "these have no safe wrapper in nix")]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// The offloads that the reader of a TUN device accepts (`TUN_F_*`, `linux/if_tun.h`): checksums to be filled
/// in, and TCP segments to be cut over IPv4 and IPv6, with ECN.
const OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x08;
/// Further offloads: UDP segments to be cut (Linux 6.2).
const OFFLOADS_UDP: libc::c_ulong = 0x20 | 0x40;

/// Returns an `ifreq` that names a device. A name that is too long for the kernel is cut.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain data; all zeros is one of its values.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn ioctl(fd: BorrowedFd<'_>, what: libc::Ioctl, request: &mut libc::ifreq) -> nix::Result<()> {
    // SAFETY: every `what` this file passes takes an `ifreq`, which lives as long as the call.
    Errno::result(unsafe { libc::ioctl(fd.as_raw_fd(), what, ptr::from_mut(request)) }).map(drop)
}

/// Turns `fd`, an open `/dev/net/tun`, into the device `name`: a TAP device, or else a TUN device, without
/// packet information before each packet (`linux/if_tun.h`).
pub(crate) fn tun_attach(fd: BorrowedFd<'_>, name: &str, tap: bool, vnet_header: bool) -> nix::Result<()> {
    let mut request = request(name);
    let kind = if tap { libc::IFF_TAP } else { libc::IFF_TUN };
    let flags = kind | libc::IFF_NO_PI | if vnet_header { libc::IFF_VNET_HDR } else { 0 };
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(fd, libc::TUNSETIFF as libc::Ioctl, &mut request)
}

/// Allows the kernel to hand `fd` packets that are larger than the MTU and have no checksums.
pub(crate) fn tun_offload(fd: BorrowedFd<'_>) -> nix::Result<()> {
    let set = |offloads: libc::c_ulong| {
        // SAFETY: TUNSETOFFLOAD takes a number, not a pointer.
        Errno::result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as libc::Ioctl, offloads) })
    };
    set(OFFLOADS | OFFLOADS_UDP).or_else(|_| set(OFFLOADS)).map(drop)
}

/// Makes a socket for the whole frames of one device, of every protocol, without those that this host sends
/// (packet(7)).
pub(crate) fn packet_socket(device: u32) -> nix::Result<OwnedFd> {
    /// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h (Linux 4.20).
    const IGNORE_OUTGOING: libc::c_int = 23;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Without a protocol, nothing comes until the socket is bound.
    let fd = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
    let one: libc::c_int = 1;
    // SAFETY: the kernel reads an integer that lives as long as the call.
    Errno::result(unsafe {
        let value = ptr::from_ref(&one).cast();
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, IGNORE_OUTGOING, value, len)
    })?;
    // SAFETY: `sockaddr_ll` is plain data; all zeros is one of its values.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = libc::c_int::try_from(device).map_err(|_| Errno::ENODEV)?;
    // SAFETY: the address lives as long as the call, and its length is that of its type.
    Errno::result(unsafe {
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(fd.as_raw_fd(), ptr::from_ref(&address).cast(), len)
    })?;
    Ok(fd)
}

/// Selects a setting of a device of the calling thread's namespace.
pub(crate) enum Device {
    /// The MTU, in bytes.
    Mtu(u32),
    /// The length of the queue for packets to send, in packets.
    Queue(u32),
    /// The device is up.
    Up,
}

/// Changes a setting of the device `name` of the calling thread's namespace.
pub(crate) fn set_device(name: &str, what: &Device) -> nix::Result<()> {
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let number = |number: u32| libc::c_int::try_from(number).map_err(|_| Errno::EINVAL);
    let mut request = request(name);
    match what {
        Device::Mtu(mtu) => {
            request.ifr_ifru.ifru_mtu = number(*mtu)?;
            ioctl(any.as_fd(), libc::SIOCSIFMTU as libc::Ioctl, &mut request)
        }
        Device::Queue(packets) => {
            // The field `ifr_qlen` of linux/if.h has the type and the offset of this one.
            request.ifr_ifru.ifru_metric = number(*packets)?;
            ioctl(any.as_fd(), libc::SIOCSIFTXQLEN as libc::Ioctl, &mut request)
        }
        Device::Up => {
            ioctl(any.as_fd(), libc::SIOCGIFFLAGS as libc::Ioctl, &mut request)?;
            // SAFETY: SIOCGIFFLAGS has just filled in the flags.
            let flags = unsafe { request.ifr_ifru.ifru_flags };
            request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
            ioctl(any.as_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &mut request)
        }
    }
}

/// Makes the kernel end the process that `command` starts (SIGKILL) when the thread that starts it ends, also
/// if the thread's process is killed.
pub fn end_with_parent(command: &mut Command) {
    let ask = || {
        // SAFETY: PR_SET_PDEATHSIG takes a number, not a pointer.
        Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) })?;
        Ok(())
    };
    // SAFETY: between fork and exec it makes one system call, and allocates nothing.
    unsafe { command.pre_exec(ask) };
}

/// Asks the kernel to back memory with huge pages as it is first written (`MADV_HUGEPAGE`), since each of the
/// small pages costs a fault. It is only for speed: a kernel may do nothing.
pub fn prefer_huge_pages<T>(memory: &mut [mem::MaybeUninit<T>]) {
    let page = 4_096;
    let start = (memory.as_ptr() as usize).next_multiple_of(page);
    let end = (memory.as_ptr() as usize + size_of_val(memory)) / page * page;
    if start < end {
        // SAFETY: the pages are within `memory`, and the advice changes no byte.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// Sets the share of the processor that the calling process claims: -20 claims the most, 19 the least.
///
/// # Errors
/// `EACCES` or `EPERM` if the process would claim more than before without `CAP_SYS_NICE`.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers, not pointers; 0 is the calling process.
    Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) })?;
    Ok(())
}

/// Holds a descriptor of one process (Linux 5.3, pidfd_open(2)). Unlike the number of a process, it never
/// refers to another process.
#[derive(Debug)]
pub struct ProcessFd(OwnedFd);

impl ProcessFd {
    /// Opens the process that has the number `pid` now.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process.
    pub fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: the call takes numbers, not pointers.
        let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }))
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// `ESRCH` if the process has ended; `EPERM` if this process may not signal it.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let (fd, none) = (self.0.as_raw_fd(), ptr::null::<libc::siginfo_t>());
        // SAFETY: without information the kernel reads no memory.
        Errno::result(unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, fd, signal as libc::c_int, none, 0)
        })?;
        Ok(())
    }
}

/// Returns the measurements of a TCP connection: the first `N` bytes of `struct tcp_info`.
///
/// # Errors
/// If `fd` is no TCP socket.
pub(crate) fn tcp_info<const N: usize>(fd: BorrowedFd<'_>) -> nix::Result<[u8; N]> {
    let mut info = [0_u8; N];
    let mut length = libc::socklen_t::try_from(N).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel writes at most `length` bytes to `info`, and both live as long as the call.
    Errno::result(unsafe {
        let value = info.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length)
    })?;
    Ok(info)
}

/// `struct mptcp_full_info` of linux/mptcp.h (Linux 6.5); the fields of the last member are left out.
#[repr(C)]
struct MptcpFullInfo {
    size_tcpinfo_kernel: u32,
    size_tcpinfo_user: u32,
    size_sfinfo_kernel: u32,
    size_sfinfo_user: u32,
    num_subflows: u32,
    size_arrays_user: u32,
    subflow_info: u64,
    tcp_info: u64,
    mptcp_info: [u64; MPTCP_INFO_BYTES / 8],
}

/// The number of bytes reserved for `struct mptcp_info`. Newer kernels have a longer one.
pub(crate) const MPTCP_INFO_BYTES: usize = 256;

/// Holds the answer to `MPTCP_FULL_INFO` about an MPTCP socket.
pub(crate) struct FullInfo<const SUBFLOW: usize, const TCP: usize> {
    /// `struct mptcp_info`; a field that the kernel does not know is 0.
    pub(crate) connection: [u64; MPTCP_INFO_BYTES / 8],
    /// `struct mptcp_subflow_info` and `struct tcp_info` of each subflow.
    pub(crate) subflows: Vec<([u8; SUBFLOW], [u8; TCP])>,
}

/// Returns the measurements of an MPTCP connection and of at most `most` of its subflows.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOPROTOOPT` if `fd` is no MPTCP socket or continues as plain TCP, or if the kernel is
/// older.
pub(crate) fn mptcp_full_info<const SUBFLOW: usize, const TCP: usize>(
    fd: BorrowedFd<'_>,
    most: u32,
) -> nix::Result<FullInfo<SUBFLOW, TCP>> {
    const SOL_MPTCP: libc::c_int = 284;
    const MPTCP_FULL_INFO: libc::c_int = 4;
    let number = |bytes: usize| u32::try_from(bytes).map_err(|_| Errno::EINVAL);
    let mut subflows = vec![[0_u8; SUBFLOW]; most as usize];
    let mut tcp = vec![[0_u8; TCP]; most as usize];
    let mut info = MptcpFullInfo {
        size_tcpinfo_kernel: 0,
        size_tcpinfo_user: number(TCP)?,
        size_sfinfo_kernel: 0,
        size_sfinfo_user: number(SUBFLOW)?,
        num_subflows: 0,
        size_arrays_user: most,
        subflow_info: subflows.as_mut_ptr().expose_provenance() as u64,
        tcp_info: tcp.as_mut_ptr().expose_provenance() as u64,
        mptcp_info: [0; MPTCP_INFO_BYTES / 8],
    };
    let mut length = number(size_of::<MptcpFullInfo>())? as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, and to the two arrays at most `most`
    // members of the sizes given there; all three live as long as the call.
    Errno::result(unsafe {
        let value = ptr::from_mut(&mut info).cast();
        libc::getsockopt(fd.as_raw_fd(), SOL_MPTCP, MPTCP_FULL_INFO, value, &raw mut length)
    })?;
    let known = info.num_subflows.min(most) as usize;
    let subflows = subflows.into_iter().zip(tcp).take(known).collect();
    Ok(FullInfo { connection: info.mptcp_info, subflows })
}
