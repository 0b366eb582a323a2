//! The system calls that need unsafe code, each wrapped in a safe function.
#![expect(unsafe_code, reason = "these have no safe wrapper in nix")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use anabranch_algo::Span;
use nix::errno::Errno;
use nix::libc;
use nix::sys::epoll::EpollEvent;

/// Puts the calling thread into the real-time class `SCHED_FIFO`.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` or `RLIMIT_RTPRIO`.
pub(crate) fn set_realtime(priority: i32) -> nix::Result<()> {
    // SAFETY: `sched_param` is plain data, for which all zeros are valid.
    let mut param: libc::sched_param = unsafe { mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: 0 is the calling thread, and `param` outlives the call.
    Errno::result(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) }).map(drop)
}

/// Waits for `epoll` to the nanosecond, for at most `timeout`; `None` means without limit. Returns the number
/// of filled `events`, which is 0 if a signal ended the wait.
///
/// # Errors
/// `ENOSYS` before Linux 5.11.
pub(crate) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [EpollEvent],
    timeout: Option<Span>,
) -> io::Result<usize> {
    let spec = timeout.map(|span| libc::timespec {
        tv_sec: (span.as_nanos() / 1_000_000_000) as libc::time_t,
        tv_nsec: (span.as_nanos() % 1_000_000_000) as _,
    });
    let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `EpollEvent` is `epoll_event` (repr(transparent)), and `room` of these may be written. `spec`
    // outlives the call. There is no signal mask, so its size does not matter.
    let done = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr().cast::<libc::epoll_event>(),
            room,
            spec.as_ref().map_or(ptr::null(), ptr::from_ref),
            ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    match Errno::result(done) {
        Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(Errno::EINTR) => Ok(0),
        Err(e) => Err(e.into()),
    }
}
