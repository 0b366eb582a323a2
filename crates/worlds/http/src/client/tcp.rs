//! Reads and sets TCP options: the kernel's measurements, and the limit of the receive window.
#![expect(unsafe_code, reason = "these options have no safe wrapper in nix or socket2")]

use std::os::fd::BorrowedFd;

use anabranch_algo::{Span, TcpSample};

/// The number of bytes of `struct tcp_info` (linux/tcp.h) that are read. An older kernel fills fewer of them.
#[cfg(any(target_os = "linux", target_os = "android"))]
const INFO_BYTES: usize = 256;

/// Limits the bytes that the peer may have in flight towards `fd` to `bytes` (TCP_WINDOW_CLAMP, tcp(7)). The
/// kernel allows at least about a kilobyte. On systems other than Linux nothing happens.
///
/// When the kernel enlarges the receive buffer, it lifts the clamp too (tcp_rcv_space_adjust in
/// net/ipv4/tcp_input.c). So set the clamp again after each read.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn set_window_clamp(fd: BorrowedFd<'_>, bytes: u64) {
    set(fd, nix::libc::IPPROTO_TCP, nix::libc::TCP_WINDOW_CLAMP, bytes);
}

/// Makes `fd` readable only when `bytes` have arrived, or the end (SO_RCVLOWAT, socket(7)). An earlier read
/// also works. On systems other than Linux nothing happens.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn set_rcvlowat(fd: BorrowedFd<'_>, bytes: u64) {
    set(fd, nix::libc::SOL_SOCKET, nix::libc::SO_RCVLOWAT, bytes);
}

/// Makes `fd` acknowledge segments as a connection does that only receives (TCP_QUICKACK, tcp(7)). On systems
/// other than Linux nothing happens.
///
/// A connection that sends, here a request while a body flows, looks interactive to Linux, which then delays
/// every acknowledgement as long as it may (`tcp_event_data_sent` in net/ipv4/tcp_output.c). The server then
/// sends in strict pairs, and behind a full drop-tail queue it loses twice as many packets as beside a
/// connection that sent its only request at the beginning.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn receive_in_bulk(fd: BorrowedFd<'_>) {
    set(fd, nix::libc::IPPROTO_TCP, nix::libc::TCP_QUICKACK, 1);
}

/// Sets a socket option whose value is a number.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn set(fd: BorrowedFd<'_>, level: nix::libc::c_int, option: nix::libc::c_int, bytes: u64) {
    use std::os::fd::AsRawFd as _;

    use nix::libc;
    let bytes = libc::c_int::try_from(bytes.max(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: the options above take an int, which lives as long as the call. A failure leaves the connection
    // as it was.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(&bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Returns the TCP_INFO of `fd`, and the number of its bytes that the kernel has filled.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn info(fd: BorrowedFd<'_>) -> Option<([u8; INFO_BYTES], usize)> {
    use std::os::fd::AsRawFd as _;

    use nix::libc;
    let mut info = [0_u8; INFO_BYTES];
    let mut length = INFO_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info` and says in `length` how many.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Some((info, usize::try_from(length).ok()?)) } else { None }
}

/// Returns the connection's round trip time, segment size and counters (TCP_INFO). Returns `None` if the
/// system does not report them.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn sample(fd: BorrowedFd<'_>) -> Option<TcpSample> {
    let (info, known) = info(fd)?;
    read(info.get(..known)?)
}

/// Does nothing on systems other than Linux.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn set_window_clamp(_fd: BorrowedFd<'_>, _bytes: u64) {}

/// Does nothing on systems other than Linux.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn set_rcvlowat(_fd: BorrowedFd<'_>, _bytes: u64) {}

/// Does nothing on systems other than Linux.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn receive_in_bulk(_fd: BorrowedFd<'_>) {}

/// Returns `None` on systems other than Linux.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn sample(_fd: BorrowedFd<'_>) -> Option<TcpSample> {
    None
}

/// Parses a `struct tcp_info`. Its offsets are stable, because it grows at its end only.
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), expect(dead_code, reason = "Linux only"))]
fn read(info: &[u8]) -> Option<TcpSample> {
    let word = |at: usize| Some(u32::from_ne_bytes(info.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(info.get(at..at + 8)?.try_into().ok()?));
    // tcpi_rtt comes from our requests and is old while a body flows; tcpi_rcv_rtt comes from the body.
    let (smoothed, receiving) = (word(68)?, word(92)?);
    let micros = if receiving == 0 { smoothed } else { receiving };
    Some(TcpSample {
        rtt: Span::from_micros(micros.into()),
        mss: word(20)?,
        received_bytes: long(128)?,
        out_of_order: word(224).unwrap_or(0),
        segments: word(152).unwrap_or(0),
    })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn the_kernel_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(&[7; 100_000]).unwrap();
        client.read_exact(&mut [0; 100_000]).unwrap();
        let sample = sample(client.as_fd()).unwrap();
        assert_eq!((sample.received_bytes, sample.out_of_order), (100_000, 0));
        assert!(sample.mss >= 500 && sample.rtt > Span::ZERO, "{sample:?}");
        // The kernel counts segments since Linux 4.6.
        assert!(sample.segments >= 2, "{sample:?}");
    }

    /// The window that the sender is told stays below the clamp, if the clamp is set after each read. On a
    /// busy machine, bytes that arrive between a read and the next clamp may rarely widen the window.
    #[test]
    fn a_clamp_holds() {
        const CLAMP: u32 = 256 << 10;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let sender = std::thread::spawn(move || while far.write_all(&[0; 1 << 16]).is_ok() {});
        let mut buffer = vec![0; 1 << 18];
        let (mut read, mut told, mut larger) = (0, 0, Vec::new());
        while read < 100 << 20 {
            read += client.read(&mut buffer).unwrap();
            set_window_clamp(client.as_fd(), CLAMP.into());
            let (info, known) = info(client.as_fd()).unwrap();
            // tcpi_rcv_wnd is known since Linux 6.2. The window that was told before the first clamp must
            // have been used up.
            if known >= 236 && read > 10 << 20 {
                let window = u32::from_ne_bytes(info[232..236].try_into().unwrap());
                told += 1;
                larger.extend(Some(window).filter(|window| *window > CLAMP));
            }
        }
        drop(client);
        sender.join().unwrap();
        assert!(larger.len() * 20 <= told, "{} of {told} windows were larger: {larger:?}", larger.len());
    }

    #[test]
    fn a_short_struct_is_unknown() {
        assert!(read(&[0; 100]).is_none());
        assert!(read(&[0; 160]).is_some());
    }
}
