//! Implements one netlink socket: sends a request and waits for its answer.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::message::{
    Attributes, DONE, ERROR, HEADER, Message, Messages, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED,
    NLM_F_DUMP_INTR, Request, text, u32_at,
};

/// The size of the receive buffer, in bytes. The kernel puts at most 32 KiB into one read of a dump
/// (`netlink_dump`).
const READ_MAX: usize = 64 * 1024;
/// The largest number of records kept of one dump. No host has a million sockets; the limit bounds the
/// memory.
const RECORDS_MAX: usize = 4 << 20;
/// The number of times that a list is requested while changes disturb its dump. The last dump is used as it
/// is.
const DUMPS_MAX: usize = 5;
/// The longest time for an answer, in seconds. The kernel answers within the call that asks, so a kernel that
/// takes longer is stuck.
const ANSWER_MAX_S: i64 = 10;
/// `NLMSGERR_ATTR_MSG`: the attribute with the kernel's own words about an error.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Says why a request failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: io::Error,
    /// The kernel's explanation of the error number.
    pub(crate) detail: Option<String>,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self { cause: errno.into(), detail: None }
    }
}

impl Failure {
    pub(crate) fn malformed() -> Self {
        let cause = io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer makes no sense");
        Self { cause, detail: None }
    }
}

type Result<T> = std::result::Result<T, Failure>;

#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: Cell<u32>,
}

impl Socket {
    pub(crate) fn open(protocol: SockProtocol) -> Result<Self> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        setsockopt(&fd, ReceiveTimeout, &TimeVal::seconds(ANSWER_MAX_S))?;
        ask_for_words(&fd);
        Ok(Self { fd, sequence: Cell::new(0) })
    }

    pub(crate) fn namespace_cookie(&self) -> Result<u64> {
        namespace_cookie(&self.fd)
    }

    /// Sends a request that changes something, and waits until it is done.
    pub(crate) fn change(&self, mut request: Request) -> Result<()> {
        request.add_flags(NLM_F_ACK);
        self.ask(request, |_| ())
    }

    /// Sends a request that has one answer followed by an acknowledgement. Returns the parsed answer.
    pub(crate) fn get<T>(&self, mut request: Request, parse: impl Fn(Message<'_>) -> Option<T>) -> Result<T> {
        request.add_flags(NLM_F_ACK);
        let mut found = None;
        self.ask(request, |message| found = parse(message))?;
        found.ok_or_else(Failure::malformed)
    }

    /// Asks for a list. `parse` returns `None` for records to leave out.
    pub(crate) fn dump<T>(
        &self,
        request: &Request,
        parse: impl Fn(Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        for _ in 0..DUMPS_MAX {
            found.clear();
            let mut disturbed = false;
            self.ask(request.clone(), |message| {
                disturbed |= message.flags & NLM_F_DUMP_INTR != 0;
                if found.len() < RECORDS_MAX {
                    found.extend(parse(message));
                }
            })?;
            if !disturbed {
                break;
            }
        }
        Ok(found)
    }

    /// Sends a request, and hands every message of its answer to `each` until the answer ends.
    fn ask(&self, request: Request, mut each: impl FnMut(Message<'_>)) -> Result<()> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        let request = request.finish(sequence);
        sendto(self.fd.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut buffer = vec![0; READ_MAX];
        loop {
            // With this flag `recv` returns the length of the whole message, even if the buffer is too short
            // for it.
            let len = match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let bytes = buffer.get(..len).ok_or_else(Failure::malformed)?;
            let mut any = false;
            for message in Messages(bytes) {
                any = true;
                // This is the rest of the answer to an earlier request that was given up.
                if message.sequence != sequence {
                    continue;
                }
                match message.kind {
                    ERROR | DONE => return end(&message),
                    _ => each(message),
                }
            }
            if !any {
                return Err(Failure::malformed());
            }
        }
    }
}

/// Returns the result that an acknowledgement, an error or the end of a dump reports. All begin with an error
/// number.
fn end(message: &Message<'_>) -> Result<()> {
    let number = match message.kind {
        // Older kernels end some dumps without a number.
        DONE => u32_at(message.body, 0).unwrap_or(0),
        _ => u32_at(message.body, 0).ok_or_else(Failure::malformed)?,
    };
    let errno = number.cast_signed().saturating_neg();
    if errno <= 0 {
        return Ok(());
    }
    Err(Failure { cause: io::Error::from_raw_os_error(errno), detail: words(message) })
}

/// Returns the kernel's own words about an error (`NETLINK_EXT_ACK`), which follow the error number and the
/// request.
fn words(message: &Message<'_>) -> Option<String> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let about = match message.kind {
        DONE => 0,
        _ if message.flags & NLM_F_CAPPED != 0 => HEADER,
        _ => usize::try_from(u32_at(message.body, 4)?).ok()?,
    };
    // An invalid length would overflow.
    let fixed = about.checked_add(4).filter(|fixed| *fixed <= message.body.len())?;
    let mut attributes = Attributes::after(message.body, fixed);
    let (_, value) = attributes.find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)?;
    let words = text(value);
    let words = words.trim().trim_end_matches('.');
    (!words.is_empty()).then(|| words.to_owned())
}

/// Returns the number of a socket's network namespace (`SO_NETNS_COOKIE`), which no other namespace gets
/// until the next boot.
#[expect(unsafe_code, reason = "nix has no SO_NETNS_COOKIE")]
fn namespace_cookie(fd: &OwnedFd) -> Result<u64> {
    use nix::libc::{SO_NETNS_COOKIE, SOL_SOCKET, c_void, getsockopt, socklen_t};
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as socklen_t;
    // SAFETY: the descriptor is open; the value is 8 bytes as its length says, and both outlive the call.
    let done = unsafe {
        let value = (&raw mut cookie).cast::<c_void>();
        getsockopt(fd.as_raw_fd(), SOL_SOCKET, SO_NETNS_COOKIE, value, &raw mut len)
    };
    Errno::result(done)?;
    Ok(cookie)
}

/// Asks the kernel to explain its errors. A kernel that cannot explain them gives the number alone.
#[expect(unsafe_code, reason = "nix has no NETLINK_EXT_ACK and NETLINK_CAP_ACK")]
fn ask_for_words(fd: &OwnedFd) {
    use nix::libc::{NETLINK_CAP_ACK, NETLINK_EXT_ACK, SOL_NETLINK, c_int, c_void, setsockopt, socklen_t};
    let on: c_int = 1;
    let len = size_of::<c_int>() as socklen_t;
    for option in [NETLINK_CAP_ACK, NETLINK_EXT_ACK] {
        // SAFETY: the descriptor is open, and the value is an int that outlives the call, as is its length.
        let _ =
            unsafe { setsockopt(fd.as_raw_fd(), SOL_NETLINK, option, (&raw const on).cast::<c_void>(), len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_and_never_panic() {
        let mut body = (-17_i32).to_ne_bytes().to_vec();
        body.extend([0; HEADER]);
        body.extend([9, 0, 1, 0, b'a', b' ', b'b', b'.', 0, 0, 0, 0]);
        let flags = NLM_F_ACK_TLVS | NLM_F_CAPPED;
        let message = Message { kind: ERROR, flags, sequence: 1, body: &body };
        let failure = end(&message).unwrap_err();
        assert_eq!(failure.cause.raw_os_error(), Some(17));
        assert_eq!(failure.detail.as_deref(), Some("a b"));
        for len in 0..body.len() {
            for flags in [0, NLM_F_ACK_TLVS, flags] {
                for kind in [ERROR, DONE] {
                    let _ = end(&Message { kind, flags, sequence: 1, body: &body[..len] });
                }
            }
        }
        for number in [i32::MIN, 5, 0] {
            let body = number.to_ne_bytes();
            let ended = end(&Message { kind: ERROR, flags: 0, sequence: 1, body: &body });
            assert_eq!(ended.is_err(), number < 0);
        }
    }
}
