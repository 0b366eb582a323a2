//! TCP and MPTCP sockets and their measurements (sock_diag(7), `linux/inet_diag.h`, `linux/tcp.h`,
//! `linux/mptcp.h`).

use std::fmt;
use std::net::SocketAddr;

use nix::sys::socket::SockProtocol;

use super::message::{Attributes, INET, INET6, NLM_F_DUMP, NLM_F_REQUEST, Request, ip, text, u32_at, u64_at};
use super::{Error, Result};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
/// `struct inet_diag_msg`.
const MSG_BYTES: usize = 72;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_MPTCP: u32 = 262;
const INET_DIAG_REQ_PROTOCOL: u16 = 3;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_ULP_INFO_MPTCP: u16 = 3;
const SUBFLOW_TOKEN_REM: u16 = 1;
const SUBFLOW_TOKEN_LOC: u16 = 2;
const SUBFLOW_FLAGS: u16 = 8;
const SUBFLOW_ID_REM: u16 = 9;
const SUBFLOW_ID_LOC: u16 = 10;

/// The state of a TCP connection (RFC 9293 section 3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "RFC 9293 describes them under these names")]
#[repr(u8)]
pub enum TcpState {
    Established = 1,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    /// A request to a listener that has not become a socket yet (`TCP_NEW_SYN_RECV`).
    NewSynReceived,
}

impl TcpState {
    const ALL: [(Self, &'static str); 12] = [
        (Self::Established, "established"),
        (Self::SynSent, "syn-sent"),
        (Self::SynReceived, "syn-received"),
        (Self::FinWait1, "fin-wait-1"),
        (Self::FinWait2, "fin-wait-2"),
        (Self::TimeWait, "time-wait"),
        (Self::Closed, "closed"),
        (Self::CloseWait, "close-wait"),
        (Self::LastAck, "last-ack"),
        (Self::Listen, "listen"),
        (Self::Closing, "closing"),
        (Self::NewSynReceived, "new-syn-received"),
    ];

    /// The states of connections in which data can still flow, for [`SockDiag::tcp`].
    pub const LIVE: &'static [Self] = &[
        Self::Established,
        Self::SynSent,
        Self::SynReceived,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::LastAck,
        Self::Closing,
    ];

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().map(|(state, _)| *state).find(|state| *state as u8 == number)
    }
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL[usize::from(*self as u8) - 1].1)
    }
}

/// A TCP socket.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSocket {
    /// The local address and port.
    pub local: SocketAddr,
    /// The remote address and port.
    pub remote: SocketAddr,
    /// The state of the connection.
    pub state: TcpState,
    /// The index of the interface that the socket is bound to.
    pub device: Option<u32>,
    /// The number that identifies this socket and no other until the next boot. `bpf_get_socket_cookie`
    /// returns it, too.
    pub cookie: u64,
    /// The inode of the socket; 0 if no process holds the socket (any more), as with the subflows of MPTCP.
    pub inode: u32,
    /// Bytes received and not read; for a listener, the connections that wait to be accepted.
    pub rqueue: u32,
    /// Bytes written and not acknowledged.
    pub wqueue: u32,
    /// The measurements of the connection.
    pub info: Option<TcpInfo>,
    /// The name of the congestion controller.
    pub congestion: Option<String>,
    /// The place of this socket in an MPTCP connection, if it is a subflow.
    pub subflow: Option<MptcpSubflow>,
}

/// The useful fields of `struct tcp_info`. A field that an older kernel does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The state of the socket.
    pub state: Option<TcpState>,
    /// The state of loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Retransmission timeouts in a row.
    pub backoff: u8,
    /// Retransmission timeout, in microseconds.
    pub rto_us: u32,
    /// Payload of a full segment, in bytes.
    pub snd_mss: u32,
    /// Packets sent and not acknowledged.
    pub unacked: u32,
    /// Unacknowledged packets that are taken for lost.
    pub lost: u32,
    /// Path MTU, in bytes.
    pub pmtu: u32,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// The variation of the round-trip time, in microseconds.
    pub rttvar_us: u32,
    /// The least round-trip time measured recently, in microseconds.
    pub min_rtt_us: u32,
    /// Slow start threshold, in packets; 2147483647 before the first loss.
    pub ssthresh: u32,
    /// Congestion window, in packets.
    pub cwnd: u32,
    /// Packets sent again since the connection began.
    pub total_retrans: u32,
    /// The rate at which packets are paced, in bytes a second.
    pub pacing_rate_bytes: u64,
    /// The rate measured by the last delivery, in bytes a second.
    pub delivery_rate_bytes: u64,
    /// Bytes sent and acknowledged, each counted once.
    pub bytes_acked: u64,
    /// Bytes received, each counted once.
    pub bytes_received: u64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_retrans: u64,
    /// Packets with data that were sent.
    pub data_segs_out: u32,
    /// Packets with data that were received.
    pub data_segs_in: u32,
    /// Packets delivered.
    pub delivered: u32,
    /// Packets delivered with a congestion mark (ECN).
    pub delivered_ce: u32,
    /// The time in which there was data to send, in microseconds.
    pub busy_us: u64,
    /// The part of `busy_us` in which the peer's receive window stopped the sender, in microseconds.
    pub rwnd_limited_us: u64,
    /// The part of `busy_us` in which the send buffer stopped the sender, in microseconds.
    pub sndbuf_limited_us: u64,
}

impl TcpInfo {
    /// Reads `struct tcp_info`. The kernel only ever appends fields to it: a field that is missing is 0.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let byte = |at| bytes.get(at).copied().unwrap_or(0);
        let u32 = |at| u32_at(bytes, at).unwrap_or(0);
        let u64 = |at| u64_at(bytes, at).unwrap_or(0);
        Self {
            state: TcpState::from_number(byte(0)),
            ca_state: byte(1),
            backoff: byte(4),
            rto_us: u32(8),
            snd_mss: u32(16),
            unacked: u32(24),
            lost: u32(32),
            pmtu: u32(60),
            rtt_us: u32(68),
            rttvar_us: u32(72),
            ssthresh: u32(76),
            cwnd: u32(80),
            total_retrans: u32(100),
            pacing_rate_bytes: u64(104),
            bytes_acked: u64(120),
            bytes_received: u64(128),
            min_rtt_us: u32(148),
            data_segs_in: u32(152),
            data_segs_out: u32(156),
            delivery_rate_bytes: u64(160),
            busy_us: u64(168),
            rwnd_limited_us: u64(176),
            sndbuf_limited_us: u64(184),
            delivered: u32(192),
            delivered_ce: u32(196),
            bytes_sent: u64(200),
            bytes_retrans: u64(208),
        }
    }
}

/// The flags of a subflow (`MPTCP_SUBFLOW_FLAG_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubflowFlags(pub u32);

impl SubflowFlags {
    /// Whether this is the first subflow: this host began or accepted the connection on it by `MP_CAPABLE`.
    #[must_use]
    pub const fn is_first(self) -> bool {
        self.0 & 0b0011 != 0
    }

    /// Whether the subflow joined a connection (`MP_JOIN`).
    #[must_use]
    pub const fn is_join(self) -> bool {
        self.0 & 0b1100 != 0
    }

    /// Whether the peer wants no data on this subflow while there is another.
    #[must_use]
    pub const fn is_backup_remote(self) -> bool {
        self.0 & 1 << 4 != 0
    }

    /// Whether this host asked the peer to send no data on this subflow while there is another.
    #[must_use]
    pub const fn is_backup_local(self) -> bool {
        self.0 & 1 << 5 != 0
    }

    /// Whether this host or the peer made this subflow a backup.
    #[must_use]
    pub const fn is_backup(self) -> bool {
        self.is_backup_local() || self.is_backup_remote()
    }

    /// Whether the handshake of the subflow is over and acknowledged.
    #[must_use]
    pub const fn is_fully_established(self) -> bool {
        self.0 & 1 << 6 != 0
    }
}

/// The place of a TCP socket in an MPTCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpSubflow {
    /// The connection's token at this host, which all its subflows share. 0 before the handshake is over, or
    /// without `CAP_NET_ADMIN`.
    pub token: u32,
    /// The connection's token at the peer.
    pub remote_token: u32,
    /// The number of the local address in MPTCP's options.
    pub local_id: u8,
    /// The number of the remote address.
    pub remote_id: u8,
    /// The flags: how the subflow began and whether it is a backup.
    pub flags: SubflowFlags,
}

impl MptcpSubflow {
    /// Reads the attributes nested in `INET_ULP_INFO_MPTCP`.
    #[must_use]
    pub fn parse(attributes: &[u8]) -> Self {
        let mut subflow = Self::default();
        for (kind, value) in Attributes(attributes) {
            let (byte, number) = (value.first().copied().unwrap_or(0), u32_at(value, 0).unwrap_or(0));
            match kind {
                SUBFLOW_TOKEN_LOC => subflow.token = number,
                SUBFLOW_TOKEN_REM => subflow.remote_token = number,
                SUBFLOW_ID_LOC => subflow.local_id = byte,
                SUBFLOW_ID_REM => subflow.remote_id = byte,
                SUBFLOW_FLAGS => subflow.flags = SubflowFlags(number),
                _ => {}
            }
        }
        subflow
    }
}

/// An MPTCP connection, as programs see it.
#[derive(Clone, Debug, PartialEq)]
pub struct MptcpConnection {
    /// The local address and port, those of the first subflow.
    pub local: SocketAddr,
    /// The remote address and port.
    pub remote: SocketAddr,
    /// The state of the connection.
    pub state: TcpState,
    /// The number that identifies this socket and no other until the next boot.
    pub cookie: u64,
    /// The inode of the socket that a program holds.
    pub inode: u32,
    /// The measurements of the connection.
    pub info: MptcpInfo,
}

/// The useful fields of `struct mptcp_info`. A field that an older kernel does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpInfo {
    /// Subflows besides the first.
    pub subflows: u8,
    /// Whether the connection continues as plain TCP, because the peer or a device on the path knows no
    /// MPTCP.
    pub fallback: bool,
    /// The connection's token at this host, as in [`MptcpSubflow::token`].
    pub token: u32,
    /// Data sequence number of the next byte that the program writes.
    pub write_seq: u64,
    /// Data sequence number of the first byte that is not acknowledged.
    pub snd_una: u64,
    /// Data sequence number of the next byte that is awaited.
    pub rcv_nxt: u64,
    /// Bytes sent, including those sent again on another subflow.
    pub bytes_sent: u64,
    /// Bytes sent again on another subflow (reinjected).
    pub bytes_retrans: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
}

impl MptcpInfo {
    /// Reads `struct mptcp_info`. The kernel only ever appends fields to it: a field that is missing is 0.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let u32 = |at| u32_at(bytes, at).unwrap_or(0);
        let u64 = |at| u64_at(bytes, at).unwrap_or(0);
        Self {
            subflows: bytes.first().copied().unwrap_or(0),
            fallback: u32(8) & 1 != 0,
            token: u32(12),
            write_seq: u64(16),
            snd_una: u64(24),
            rcv_nxt: u64(32),
            bytes_retrans: u64(48),
            bytes_sent: u64(56),
            bytes_received: u64(64),
            bytes_acked: u64(72),
        }
    }
}

/// The fields of `struct inet_diag_msg`, which all sockets have.
struct InetDiagMsg {
    local: SocketAddr,
    remote: SocketAddr,
    state: TcpState,
    device: Option<u32>,
    cookie: u64,
    rqueue: u32,
    wqueue: u32,
    inode: u32,
}

impl InetDiagMsg {
    fn parse(body: &[u8]) -> Option<Self> {
        let fixed = body.first_chunk::<MSG_BYTES>()?;
        let len = match fixed[0] {
            INET => 4,
            INET6 => 16,
            _ => return None,
        };
        let end = |port: usize, at: usize| {
            let port = u16::from_be_bytes([fixed[port], fixed[port + 1]]);
            // An IPv6 socket may carry IPv4: both ends then become IPv4 addresses.
            Some(SocketAddr::new(ip(fixed.get(at..at + len)?)?.to_canonical(), port))
        };
        let (low, high) = (u32_at(fixed, 44)?, u32_at(fixed, 48)?);
        Some(Self {
            local: end(4, 8)?,
            remote: end(6, 24)?,
            state: TcpState::from_number(fixed[1])?,
            device: u32_at(fixed, 40).filter(|index| *index > 0),
            cookie: u64::from(high) << 32 | u64::from(low),
            rqueue: u32_at(fixed, 56)?,
            wqueue: u32_at(fixed, 60)?,
            inode: u32_at(fixed, 68)?,
        })
    }
}

impl TcpSocket {
    /// Reads the body of an answer about TCP. Returns `None` if it is too short or its family or state is
    /// unknown.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let InetDiagMsg { local, remote, state, device, cookie, rqueue, wqueue, inode } =
            InetDiagMsg::parse(body)?;
        let (mut info, mut congestion, mut subflow) = (None, None, None);
        for (kind, value) in Attributes::after(body, MSG_BYTES) {
            match kind {
                INET_DIAG_INFO => info = Some(TcpInfo::parse(value)),
                INET_DIAG_CONG => congestion = Some(text(value)),
                INET_DIAG_ULP_INFO => {
                    let mptcp = Attributes(value).find(|(kind, _)| *kind == INET_ULP_INFO_MPTCP);
                    subflow = mptcp.map(|(_, attributes)| MptcpSubflow::parse(attributes));
                }
                _ => {}
            }
        }
        Some(Self { local, remote, state, device, cookie, inode, rqueue, wqueue, info, congestion, subflow })
    }
}

impl MptcpConnection {
    /// Reads the body of an answer about MPTCP. Returns `None` if it is too short or its family or state is
    /// unknown.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let InetDiagMsg { local, remote, state, cookie, inode, .. } = InetDiagMsg::parse(body)?;
        let mut attributes = Attributes::after(body, MSG_BYTES);
        let info = attributes.find(|(kind, _)| *kind == INET_DIAG_INFO).map(|(_, value)| value);
        Some(Self { local, remote, state, cookie, inode, info: MptcpInfo::parse(info.unwrap_or_default()) })
    }
}

/// Lists the sockets of a network namespace.
#[derive(Debug)]
pub struct SockDiag {
    socket: super::socket::Socket,
}

impl SockDiag {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// If the netlink socket cannot be opened.
    pub fn open() -> Result<Self> {
        let socket = super::socket::Socket::open(SockProtocol::NetlinkSockDiag);
        Ok(Self { socket: socket.map_err(|failure| Error::new("open a sock_diag socket", failure))? })
    }

    /// Lists the TCP sockets in `states`, IPv4 and IPv6, with their measurements. The subflows of MPTCP are
    /// among them.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no `tcp_diag`.
    pub fn tcp(&self, states: &[TcpState]) -> Result<Vec<TcpSocket>> {
        self.dump(IPPROTO_TCP, states, TcpSocket::parse)
            .map_err(|failure| Error::new("list the TCP sockets", failure))
    }

    /// Lists the MPTCP connections in `states`. Those that fell back to TCP are among them and have
    /// [`MptcpInfo::fallback`].
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no `mptcp_diag`.
    pub fn mptcp(&self, states: &[TcpState]) -> Result<Vec<MptcpConnection>> {
        self.dump(IPPROTO_MPTCP, states, MptcpConnection::parse)
            .map_err(|failure| Error::new("list the MPTCP connections", failure))
    }

    fn dump<T>(
        &self,
        protocol: u32,
        states: &[TcpState],
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> std::result::Result<Vec<T>, super::socket::Failure> {
        let mut all = Vec::new();
        for family in [INET, INET6] {
            let request = request(family, protocol, states);
            all.extend(self.socket.dump(&request, |message| parse(message.body))?);
        }
        Ok(all)
    }
}

fn request(family: u8, protocol: u32, states: &[TcpState]) -> Request {
    let mut fixed = [0; REQUEST_BYTES];
    fixed[0] = family;
    // A protocol number above 255 does not fit into this byte: the attribute below holds it.
    fixed[1] = u8::try_from(protocol).unwrap_or(0);
    fixed[2] = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
    let mask = states.iter().fold(0_u32, |mask, state| mask | 1 << *state as u8);
    fixed[4..8].copy_from_slice(&mask.to_ne_bytes());
    let mut request = Request::new(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, &fixed);
    if u8::try_from(protocol).is_err() {
        request.u32(INET_DIAG_REQ_PROTOCOL, protocol);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Vec<u8> {
        let mut fixed = [0; MSG_BYTES];
        (fixed[0], fixed[1], fixed[5], fixed[7]) = (INET, 1, 80, 81);
        fixed[8..12].copy_from_slice(&[10, 0, 0, 1]);
        fixed[24..28].copy_from_slice(&[10, 0, 0, 2]);
        fixed[44..48].copy_from_slice(&7_u32.to_ne_bytes());
        fixed[48..52].copy_from_slice(&1_u32.to_ne_bytes());
        let mut request = Request::new(SOCK_DIAG_BY_FAMILY, 0, &fixed);
        let mut info = [0; 240];
        info[80..84].copy_from_slice(&33_u32.to_ne_bytes());
        request.attribute(INET_DIAG_INFO, &info).text(INET_DIAG_CONG, "reno");
        request.nest(INET_DIAG_ULP_INFO, &[], |ulp| {
            ulp.text(1, "mptcp").nest(INET_ULP_INFO_MPTCP, &[], |mptcp| {
                mptcp.u32(SUBFLOW_TOKEN_LOC, 99).u32(SUBFLOW_FLAGS, 1 << 5 | 1 << 3);
            });
        });
        request.finish(0).split_off(16)
    }

    #[test]
    fn a_subflow_is_read() {
        let socket = TcpSocket::parse(&body()).unwrap();
        assert_eq!(socket.local.to_string(), "10.0.0.1:80");
        assert_eq!(socket.remote.to_string(), "10.0.0.2:81");
        assert_eq!(socket.cookie, 1 << 32 | 7);
        assert_eq!(socket.state.to_string(), "established");
        assert_eq!(socket.info.map(|info| info.cwnd), Some(33));
        assert_eq!(socket.congestion.as_deref(), Some("reno"));
        let subflow = socket.subflow.unwrap();
        assert!(subflow.flags.is_backup() && subflow.flags.is_join() && !subflow.flags.is_first());
        assert_eq!(subflow.token, 99);
    }

    #[test]
    fn what_is_cut_does_not_panic() {
        let body = body();
        for len in 0..body.len() {
            assert!(len >= MSG_BYTES || TcpSocket::parse(&body[..len]).is_none());
            let _ = (TcpSocket::parse(&body[..len]), MptcpConnection::parse(&body[..len]));
        }
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
        for (state, name) in TcpState::ALL {
            assert_eq!(TcpState::from_number(state as u8), Some(state));
            assert_eq!(state.to_string(), name);
        }
    }
}
