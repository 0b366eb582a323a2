//! One flow: two hosts with their stacks, and the transfers between them.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mptcp::{
    ConnectionEvent, ConnectionId, Input, LocalAddress, Seed, Segment, Stack, SubflowReport,
};
use anabranch_sim::RouteId;

use super::config::{Opener, TcpFlowConfig, TcpPath};
use super::packet::TcpPacket;
use super::transfer::{Transfer, TransferReport};

/// Port of all connections at the host that does not open them.
const PORT: u16 = 80;
/// Most polls of a stack in one go; more mean an endless loop.
const POLLS_MAX: u32 = 1 << 20;
/// Most violations that are kept.
const VIOLATIONS_MAX: usize = 8;
/// Indices of the hosts.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// The purpose of a timer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// A transfer begins or writes its next message.
    Transfer(u32),
    /// A host's stack has something to do.
    Host(u8),
    /// The flow stops.
    Stop,
}

struct Host {
    stack: Stack,
    /// Transfer of each connection.
    transfers: BTreeMap<ConnectionId, usize>,
    deadline: Time,
    /// Time of the timer entry in the queue; a later deadline is noticed when the entry comes due.
    timer: Time,
}

/// A flow.
pub(super) struct Flow {
    no: u32,
    /// Number of the first path among all paths of TCP flows.
    first_path: u32,
    paths: Vec<TcpPath>,
    opener: usize,
    hosts: [Host; 2],
    transfers: Vec<Transfer>,
    objects: VecDeque<u64>,
    /// Transfer of each subflow that the opener has up, by the opener's end.
    subflows: BTreeMap<SocketAddr, usize>,
    delivered: Vec<u64>,
    /// Segments with data that the sender has sent.
    data_segments: u64,
    srtts: Vec<Span>,
    /// Messages that become due, with the number of their transfer.
    coming: Vec<(Time, u32)>,
    offers_multipath: bool,
    storm: bool,
    violations: Vec<String>,
}

/// Returns the opener's address on a path.
fn address(path: usize) -> IpAddr {
    IpAddr::from([10, 0, (path >> 8) as u8, path as u8])
}

/// Returns the address of the host that does not open connections.
fn passive() -> IpAddr {
    IpAddr::from([10, 255, 0, 1])
}

impl Flow {
    pub(super) fn new(no: u32, first_path: u32, config: TcpFlowConfig, seed: Seed) -> Self {
        let opener = match config.opener {
            Opener::Sender => SENDER,
            Opener::Receiver => RECEIVER,
        };
        let host = |at: usize| {
            let (mut stack, mut seed) = (config.stack.clone(), seed);
            seed[0] ^= at as u8;
            if at == opener {
                stack.addresses = (0..config.paths.len()).map(|p| LocalAddress::new(address(p))).collect();
            }
            let mut stack = Stack::new(stack, seed);
            if at != opener {
                stack.listen(PORT);
            }
            Host { stack, transfers: BTreeMap::new(), deadline: Time::NEVER, timer: Time::NEVER }
        };
        Self {
            no,
            first_path,
            opener,
            hosts: [host(SENDER), host(RECEIVER)],
            transfers: config.transfers.into_iter().map(Transfer::new).collect(),
            objects: config.objects.into(),
            subflows: BTreeMap::new(),
            delivered: vec![0; config.paths.len()],
            data_segments: 0,
            srtts: vec![Span::ZERO; config.paths.len()],
            paths: config.paths,
            coming: Vec::new(),
            offers_multipath: config.stack.mptcp,
            storm: false,
            violations: Vec::new(),
        }
    }

    /// Handles a timer.
    pub(super) fn timer(&mut self, now: Time, due: Due, send: &mut impl FnMut(RouteId, TcpPacket)) {
        match due {
            Due::Transfer(t) => self.transfer_due(now, t as usize, send),
            Due::Host(at) => {
                let host = &mut self.hosts[usize::from(at)];
                // An earlier timer, which has been handled, may have replaced this one.
                if host.timer <= now {
                    host.timer = Time::NEVER;
                    self.drain(now, at.into(), send);
                }
            }
            Due::Stop => {
                for transfer in &mut self.transfers {
                    if let Some(id) = transfer.ids[SENDER].filter(|_| !transfer.is_over) {
                        transfer.is_over = true;
                        self.hosts[SENDER].stack.abort(id);
                    }
                }
                self.drain(now, SENDER, send);
            }
        }
    }

    fn transfer_due(&mut self, now: Time, t: usize, send: &mut impl FnMut(RouteId, TcpPacket)) {
        let Self { transfers, hosts, opener, .. } = self;
        let Some(transfer) = transfers.get_mut(t) else { return };
        let host = &mut hosts[*opener];
        if transfer.report.began.is_none() {
            transfer.report.began = Some(now);
            let id = host.stack.connect(now, address(0), SocketAddr::new(passive(), PORT));
            host.transfers.extend(id.map(|id| (id, t)));
            transfer.ids[*opener] = id;
            if id.is_none() {
                self.violated(format!("transfer {t}: all ports are in use"));
                return;
            }
        }
        let next = transfer.become_due(now);
        transfer.write(&mut hosts[SENDER].stack);
        self.coming.extend(next.map(|at| (at, t as u32)));
        for at in [SENDER, RECEIVER] {
            self.drain(now, at, send);
        }
    }

    /// Handles a packet that has arrived.
    pub(super) fn arrived(
        &mut self,
        now: Time,
        packet: &TcpPacket,
        send: &mut impl FnMut(RouteId, TcpPacket),
    ) {
        if packet.broken {
            return;
        }
        let (at, segment) = (usize::from(packet.to_receiver), &packet.segment);
        let ends = (segment.target, segment.source);
        let stack = &mut self.hosts[at].stack;
        if at == RECEIVER && !segment.payload.is_empty() {
            let before = stack.received_bytes(ends.0, ends.1);
            stack.handle(now, Input::Segment(segment));
            let bytes = stack.received_bytes(ends.0, ends.1).saturating_sub(before);
            self.delivered[(packet.path - self.first_path) as usize] += bytes;
        } else {
            stack.handle(now, Input::Segment(segment));
        }
        if at == SENDER {
            self.write(ends);
        }
        self.drain(now, at, send);
    }

    /// Lets the program of the sender write whose connection has a subflow between these ends, if it has
    /// something to write: the segment may have made room.
    fn write(&mut self, (local, remote): (SocketAddr, SocketAddr)) {
        let Self { transfers, hosts: [sender, _], .. } = self;
        let id = sender.stack.connection(local, remote);
        let Some(&t) = id.and_then(|id| sender.transfers.get(&id)) else { return };
        if transfers[t].wants_to_write() {
            transfers[t].write(&mut sender.stack);
        }
    }

    /// Lets a stack do everything that is due.
    fn drain(&mut self, now: Time, at: usize, send: &mut impl FnMut(RouteId, TcpPacket)) {
        for _ in 0..POLLS_MAX {
            match self.hosts[at].stack.poll(now) {
                Output::Send(segment) => self.transmit(at, segment, send),
                Output::Event((id, event)) => self.event(now, at, id, event),
                Output::Wait(deadline) => {
                    self.hosts[at].deadline = deadline;
                    return;
                }
            }
        }
        self.storm = true;
        self.violated(format!("{POLLS_MAX} polls at {} ns", now.as_nanos()));
    }

    fn transmit(&mut self, from: usize, segment: Segment, send: &mut impl FnMut(RouteId, TcpPacket)) {
        let own = if from == self.opener { segment.source.ip() } else { segment.target.ip() };
        let Some(path) = self.path_of(own) else { return };
        let to_receiver = from == SENDER;
        self.data_segments += u64::from(to_receiver && !segment.payload.is_empty());
        let TcpPath { down, up } = self.paths[path];
        let packet = TcpPacket {
            segment,
            flow: self.no,
            path: self.first_path + path as u32,
            to_receiver,
            broken: false,
        };
        send(if to_receiver { down } else { up }, packet);
    }

    /// Returns the path of an address of the opener.
    fn path_of(&self, address: IpAddr) -> Option<usize> {
        let IpAddr::V4(address) = address else { return None };
        let [10, 0, high, low] = address.octets() else { return None };
        let path = usize::from(high) << 8 | usize::from(low);
        (path < self.paths.len()).then_some(path)
    }

    fn event(&mut self, now: Time, at: usize, id: ConnectionId, event: ConnectionEvent) {
        match event {
            ConnectionEvent::SubflowUp { local, remote } => self.subflow_up(now, at, id, (local, remote)),
            ConnectionEvent::SubflowDown { last, .. } => {
                if at == self.opener {
                    self.subflows.remove(&last.local);
                }
                if at == SENDER {
                    self.note_subflow_end(id, &last);
                }
            }
            ConnectionEvent::Readable => self.read(now, at, id),
            ConnectionEvent::PeerFinished => self.hosts[at].stack.finish(id),
            ConnectionEvent::FellBack => self.violated("a connection fell back to plain TCP".into()),
            ConnectionEvent::Established { multipath } => {
                if self.offers_multipath && !multipath {
                    self.violated("a connection is plain TCP".into());
                }
            }
            ConnectionEvent::Closed { .. } => {
                let Some(t) = self.hosts[at].transfers.remove(&id) else { return };
                self.transfers[t].is_over |= at == SENDER;
            }
        }
    }

    fn subflow_up(
        &mut self,
        now: Time,
        at: usize,
        id: ConnectionId,
        (local, remote): (SocketAddr, SocketAddr),
    ) {
        let t = if at == self.opener {
            let t = self.hosts[at].transfers.get(&id).copied();
            self.subflows.extend(t.map(|t| (local, t)));
            t
        } else {
            self.subflows.get(&remote).copied()
        };
        let Some(t) = t else { return };
        let is_new = self.hosts[at].transfers.insert(id, t).is_none() || at == self.opener;
        let Self { transfers, hosts, objects, .. } = self;
        transfers[t].ids[at] = Some(id);
        if at == SENDER && is_new {
            transfers[t].write(&mut hosts[SENDER].stack);
        } else if at == RECEIVER && is_new {
            transfers[t].ask(now, &mut hosts[RECEIVER].stack, objects);
        }
    }

    /// Lets a program read all that has come.
    fn read(&mut self, now: Time, at: usize, id: ConnectionId) {
        let Some(&t) = self.hosts[at].transfers.get(&id) else { return };
        let Self { transfers, hosts, objects, .. } = self;
        let (transfer, stack) = (&mut transfers[t], &mut hosts[at].stack);
        let (mut is_right, had_ended) = (true, transfer.report.ended.is_some());
        while let Some(view) = stack.read_view(id) {
            if at == RECEIVER {
                is_right &= transfer.take(now, &view);
            } else {
                transfer.hear(view.len() as u64);
            }
        }
        if at == RECEIVER {
            transfer.ask(now, stack, objects);
        } else {
            transfer.write(stack);
        }
        if transfer.report.ended.is_some() && !had_ended {
            self.note_end(t);
        }
        if !is_right {
            self.violated(format!("transfer {t} has wrong bytes"));
        }
    }

    /// Notes the last numbers of one of the sender's subflows whose transfer is in progress, or was stopped.
    fn note_subflow_end(&mut self, id: ConnectionId, last: &SubflowReport) {
        let path = self.path_of(self.opener_end(last).ip());
        let Some(transfer) = self.transfers.iter_mut().find(|transfer| transfer.ids[SENDER] == Some(id))
        else {
            return;
        };
        if transfer.report.ended.is_some() {
            return;
        }
        transfer.report.timeouts += u64::from(last.timeouts);
        transfer.report.reductions += u64::from(last.reductions);
        if let Some(path) = path.filter(|_| last.srtt > Span::ZERO) {
            self.srtts[path] = last.srtt;
        }
    }

    /// Returns the opener's end of one of the sender's subflows.
    const fn opener_end(&self, report: &SubflowReport) -> SocketAddr {
        if self.opener == SENDER { report.local } else { report.remote }
    }

    /// Notes the sender's numbers when the last byte of a transfer has been read.
    fn note_end(&mut self, t: usize) {
        self.srtts = self.srtts();
        let Some(id) = self.transfers[t].ids[SENDER] else { return };
        for report in self.hosts[SENDER].stack.subflows(id) {
            let counts = &mut self.transfers[t].report;
            counts.timeouts += u64::from(report.timeouts);
            counts.reductions += u64::from(report.reductions);
        }
    }

    fn violated(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX && !self.violations.contains(&what) {
            self.violations.push(what);
        }
    }

    /// Returns the timers that must be added to the queue.
    pub(super) fn new_timers(&mut self) -> impl Iterator<Item = (Time, Due)> + use<> {
        let coming = std::mem::take(&mut self.coming);
        let host = |(at, host): (usize, &mut Host)| {
            let is_earlier = host.deadline < host.timer;
            host.timer = host.timer.min(host.deadline);
            is_earlier.then_some((host.timer, Due::Host(at as u8)))
        };
        let hosts: Vec<_> = self.hosts.iter_mut().enumerate().filter_map(host).collect();
        coming.into_iter().map(|(at, t)| (at, Due::Transfer(t))).chain(hosts)
    }

    // Readers.

    pub(super) const fn storms(&self) -> bool {
        self.storm
    }
    pub(super) fn violations(&self) -> &[String] {
        &self.violations
    }
    pub(super) const fn data_segments(&self) -> u64 {
        self.data_segments
    }
    pub(super) fn delivered(&self) -> &[u64] {
        &self.delivered
    }
    pub(super) fn read_bytes(&self) -> u64 {
        self.transfers.iter().map(Transfer::read_bytes).sum()
    }

    /// Calls `f` with the path and the report of each subflow of the sender whose transfer is in progress.
    pub(super) fn each_subflow(&self, mut f: impl FnMut(usize, &SubflowReport)) {
        let sender = &self.hosts[SENDER];
        for (id, t) in &sender.transfers {
            if self.transfers[*t].report.ended.is_some() {
                continue;
            }
            for report in sender.stack.subflows(*id) {
                if let Some(path) = self.path_of(self.opener_end(&report).ip()) {
                    f(path, &report);
                }
            }
        }
    }

    /// Returns the smoothed RTT of each path.
    pub(super) fn srtts(&self) -> Vec<Span> {
        let mut srtts = self.srtts.clone();
        self.each_subflow(|path, report| {
            if report.srtt > Span::ZERO {
                srtts[path] = report.srtt;
            }
        });
        srtts
    }

    /// Returns a report of each transfer.
    pub(super) fn transfers(&self) -> Vec<TransferReport> {
        let report = |transfer: &Transfer| {
            let mut report = transfer.report.clone();
            if let Some(id) = transfer.ids[SENDER].filter(|_| report.ended.is_none()) {
                for subflow in self.hosts[SENDER].stack.subflows(id) {
                    report.timeouts += u64::from(subflow.timeouts);
                    report.reductions += u64::from(subflow.reductions);
                }
            }
            report
        };
        self.transfers.iter().map(report).collect()
    }
}
