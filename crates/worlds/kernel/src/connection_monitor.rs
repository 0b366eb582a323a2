//! Live statistics of the kernel's MPTCP connections and their subflows, and of plain TCP.
//!
//! A snapshot is made from two lists of the kernel (sock_diag(7)). Nothing is attached to the kernel and
//! nothing in it gets slower, and this works with every congestion controller. Numbers that only a controller
//! knows come through [`ControllerStats`].
//!
//! * [`ConnectionMonitor`]: takes snapshots, and computes rates from the changes since the last snapshot.
//! * [`prometheus_text`]: writes a snapshot as text for Prometheus.

mod prometheus;
mod snapshot;

pub use prometheus::prometheus_text;
pub use snapshot::{CONNECTIONS_MAX, ConnectionKind, ConnectionRow, NmccFactors, Snapshot, SubflowRow};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use anabranch_algo::{Rate, Time};
use anabranch_net::netlink::{MptcpConnection, Netlink, Result, SockDiag, TcpSocket, TcpState};

use crate::bpf_abi::SSTHRESH_INFINITE;

/// Knows the numbers that congestion controllers keep of their subflows, and the kernel does not list.
pub trait ControllerStats {
    /// Reads the numbers again, because a new snapshot begins.
    fn refresh(&self) {}
    /// Returns the numbers of the socket with this cookie (the kernel's number for the socket,
    /// [`TcpSocket::cookie`]). `None` if the controller of the socket keeps none, or is none of ours.
    fn factors(&self, cookie: u64) -> Option<NmccFactors>;
}

/// Stands for a host where none of our controllers is loaded.
impl ControllerStats for () {
    fn factors(&self, _cookie: u64) -> Option<NmccFactors> {
        None
    }
}

/// Takes snapshots of the sockets of one network namespace.
pub struct ConnectionMonitor {
    sockets: SockDiag,
    netlink: Netlink,
    controllers: Arc<dyn ControllerStats + Send + Sync>,
    tcp: bool,
    last_at: Option<Time>,
    /// Bytes acknowledged and received at the last snapshot, by the socket's cookie.
    last: BTreeMap<u64, (u64, u64)>,
}

impl std::fmt::Debug for ConnectionMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionMonitor")
            .field("tcp", &self.tcp)
            .field("last_at", &self.last_at)
            .finish_non_exhaustive()
    }
}

impl ConnectionMonitor {
    /// Opens a monitor of the calling thread's network namespace. With `tcp`, snapshots contain plain TCP
    /// connections too. Pass `Arc::new(())` as `controllers` if none of our controllers is loaded.
    ///
    /// # Errors
    /// If socket(2) fails.
    pub fn open(controllers: Arc<dyn ControllerStats + Send + Sync>, tcp: bool) -> Result<Self> {
        Ok(Self {
            sockets: SockDiag::open()?,
            netlink: Netlink::open()?,
            controllers,
            tcp,
            last_at: None,
            last: BTreeMap::new(),
        })
    }

    /// Takes a snapshot. Rates are means since the last snapshot; they are 0 in the first one and for new
    /// connections.
    ///
    /// # Errors
    /// If the kernel cannot list its sockets.
    pub fn snapshot(&mut self, now: Time) -> Result<Snapshot> {
        self.controllers.refresh();
        let sockets = self.sockets.tcp(TcpState::LIVE)?;
        // A kernel that does not list MPTCP sockets still tells for each TCP socket which connection it
        // belongs to.
        let connections = match self.sockets.mptcp(TcpState::LIVE) {
            Err(e) if e.is_missing() => Vec::new(),
            other => other?,
        };
        let names: BTreeMap<u32, String> =
            self.netlink.links()?.into_iter().map(|link| (link.index, link.name)).collect();
        let addresses = self.netlink.addresses()?.into_iter();
        let addresses: BTreeMap<IpAddr, u32> = addresses.map(|a| (a.ip, a.device)).collect();

        let span = self.last_at.map(|last| now.since(last));
        let (mut rows, mut seen) = (Vec::new(), BTreeMap::new());
        for socket in &sockets {
            let info = socket.info.unwrap_or_default();
            seen.insert(socket.cookie, (info.bytes_acked, info.bytes_received));
            let before = span.zip(self.last.get(&socket.cookie).copied());
            let rate = |now: u64, before: Option<u64>| {
                let span = span.unwrap_or_default();
                before.map_or(0, |before| Rate::of(now.saturating_sub(before), span).as_bytes())
            };
            let device = socket.device.or_else(|| addresses.get(&socket.local.ip()).copied());
            rows.push(SubflowRow {
                cookie: socket.cookie,
                local: socket.local,
                remote: socket.remote,
                interface: device.and_then(|device| names.get(&device).cloned()),
                state: socket.state.to_string(),
                backup: socket.subflow.is_some_and(|subflow| subflow.flags.is_backup()),
                controller: socket.congestion.clone().unwrap_or_default(),
                cwnd: info.cwnd,
                ssthresh: Some(info.ssthresh).filter(|threshold| *threshold < SSTHRESH_INFINITE),
                srtt_us: info.rtt_us,
                rttvar_us: info.rttvar_us,
                sent_rate_bytes: rate(info.bytes_acked, before.map(|(_, (acked, _))| acked)),
                received_rate_bytes: rate(info.bytes_received, before.map(|(_, (_, received))| received)),
                acked_bytes: info.bytes_acked,
                received_bytes: info.bytes_received,
                retransmits: info.total_retrans,
                retransmitted_bytes: info.bytes_retrans,
                factors: self.controllers.factors(socket.cookie),
            });
        }
        (self.last_at, self.last) = (Some(now), seen);
        Ok(group_by_connection(&sockets, rows, &connections, self.tcp))
    }
}

/// Groups the subflows by the connection that they belong to.
fn group_by_connection(
    sockets: &[TcpSocket],
    rows: Vec<SubflowRow>,
    connections: &[MptcpConnection],
    tcp: bool,
) -> Snapshot {
    let by_token: BTreeMap<u32, &MptcpConnection> = connections.iter().map(|c| (c.info.token, c)).collect();
    // A connection that fell back to TCP has no subflows, but one TCP socket with the same two addresses.
    let fallback: BTreeMap<_, _> =
        connections.iter().filter(|c| c.info.fallback).map(|c| ((c.local, c.remote), c)).collect();
    let mut joined: BTreeMap<(ConnectionKind, u64), ConnectionRow> = BTreeMap::new();
    for (socket, row) in sockets.iter().zip(rows) {
        let fell = fallback.get(&(socket.local, socket.remote)).copied();
        let subflow = socket.subflow.filter(|_| fell.is_none());
        let connection = subflow.and_then(|s| by_token.get(&s.token).copied()).or(fell);
        let (kind, key) = match (subflow, fell) {
            (_, Some(_)) => (ConnectionKind::Fallback, row.cookie),
            // A subflow without a token, or whose token this process may not see, is shown as a connection of
            // its own.
            (Some(subflow), _) if subflow.token > 0 => (ConnectionKind::Mptcp, u64::from(subflow.token)),
            (Some(_), _) => (ConnectionKind::Mptcp, row.cookie),
            (None, None) => (ConnectionKind::Tcp, row.cookie),
        };
        if kind == ConnectionKind::Tcp && !tcp {
            continue;
        }
        let token = connection.map(|c| c.info.token).or(subflow.map(|s| s.token)).filter(|token| *token > 0);
        let entry = joined.entry((kind, key)).or_insert_with(|| ConnectionRow {
            kind,
            token: token.map(|token| format!("{token:08x}")),
            local: connection.map_or(row.local, |c| c.local),
            remote: connection.map_or(row.remote, |c| c.remote),
            state: connection.map_or_else(|| row.state.clone(), |c| c.state.to_string()),
            sent_rate_bytes: 0,
            received_rate_bytes: 0,
            reinjected_bytes: connection.map_or(0, |c| c.info.bytes_retrans),
            subflows: Vec::new(),
        });
        entry.sent_rate_bytes += row.sent_rate_bytes;
        entry.received_rate_bytes += row.received_rate_bytes;
        entry.subflows.push(row);
    }
    let mut all: Vec<_> = joined.into_values().collect();
    for connection in &mut all {
        connection
            .subflows
            .sort_by(|a, b| (&a.interface, a.local, a.remote).cmp(&(&b.interface, b.local, b.remote)));
    }
    let rate = |c: &ConnectionRow| c.sent_rate_bytes.saturating_add(c.received_rate_bytes);
    all.sort_by_key(|c| (std::cmp::Reverse(rate(c)), c.kind, c.local, c.remote));
    let left_out = all.len().saturating_sub(CONNECTIONS_MAX);
    all.truncate(CONNECTIONS_MAX);
    Snapshot { connections: all, left_out }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::SocketAddr;

    use anabranch_net::netlink::{MptcpInfo, MptcpSubflow};

    pub(crate) fn row(cookie: u64) -> SubflowRow {
        SubflowRow {
            cookie,
            local: SocketAddr::new(IpAddr::from([10, 0, 0, 1]), cookie as u16),
            remote: "[2001:db8::1]:443".parse().unwrap(),
            interface: Some("wlan0".into()),
            state: "established".into(),
            backup: false,
            controller: "reno".into(),
            cwnd: 10,
            ssthresh: None,
            srtt_us: 20_500,
            rttvar_us: 1_000,
            sent_rate_bytes: cookie,
            received_rate_bytes: 0,
            acked_bytes: 5,
            received_bytes: 6,
            retransmits: 7,
            retransmitted_bytes: 8,
            factors: None,
        }
    }

    fn socket(row: &SubflowRow, token: Option<u32>) -> TcpSocket {
        TcpSocket {
            local: row.local,
            remote: row.remote,
            state: TcpState::Established,
            device: None,
            cookie: row.cookie,
            inode: 0,
            rqueue: 0,
            wqueue: 0,
            info: None,
            congestion: None,
            subflow: token.map(|token| MptcpSubflow { token, ..MptcpSubflow::default() }),
        }
    }

    fn connection(of: &SubflowRow, token: u32, fallback: bool) -> MptcpConnection {
        MptcpConnection {
            local: of.local,
            remote: of.remote,
            state: TcpState::Established,
            cookie: 1_000,
            inode: 7,
            info: MptcpInfo { token, fallback, bytes_retrans: 9, ..MptcpInfo::default() },
        }
    }

    #[test]
    fn subflows_find_their_connections() {
        let rows: Vec<_> = (1..=7).map(row).collect();
        let tokens = [Some(77), Some(77), None, Some(0), Some(0), Some(88), None];
        let sockets: Vec<_> = rows.iter().zip(tokens).map(|(row, token)| socket(row, token)).collect();
        let connections = [connection(&rows[0], 77, false), connection(&rows[6], 99, true)];
        let snapshot = group_by_connection(&sockets, rows.clone(), &connections, true);
        let shape = |snapshot: &Snapshot| {
            let of = |c: &ConnectionRow| (c.kind, c.token.clone(), c.subflows.len(), c.sent_rate_bytes);
            snapshot.connections.iter().map(of).collect::<Vec<_>>()
        };
        let text = |text: &str| Some(text.to_owned());
        let expected = [
            (ConnectionKind::Fallback, text("00000063"), 1, 7),
            (ConnectionKind::Mptcp, text("00000058"), 1, 6),
            (ConnectionKind::Mptcp, None, 1, 5),
            (ConnectionKind::Mptcp, None, 1, 4),
            (ConnectionKind::Mptcp, text("0000004d"), 2, 3),
            (ConnectionKind::Tcp, None, 1, 3),
        ];
        assert_eq!(shape(&snapshot), expected);
        let snapshot = group_by_connection(&sockets, rows, &connections, false);
        assert_eq!(shape(&snapshot), expected[..5], "without TCP");
    }
}
