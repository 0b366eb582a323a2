//! Makes segments, frames and capture files.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;

use anabranch_mptcp_wire::tcp::TcpHeader;
use anabranch_mptcp_wire::{
    DataNumber, Dss, DssMapping, Join, Key, MpCapable, MptcpOption, OptionBuffer, TcpOption, Version,
};
use anabranch_trace::segment::Flags;
use anabranch_trace::{Analysis, CaptureError, ConnectionReport, Totals, read_capture};

pub(crate) const MS: u64 = 1_000_000;
/// When captures begin, nanoseconds since 1970.
pub(crate) const BEGIN: u64 = 1_700_000_000_000_000_000;

/// A TCP segment.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) flags: Flags,
    pub(crate) options: OptionBuffer,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    pub(crate) fn options(&mut self, options: &[MptcpOption<'_>]) {
        for option in options {
            assert!(self.options.push(&TcpOption::Mptcp(*option)));
        }
    }

    /// Returns the segment as an IP packet.
    pub(crate) fn ip(&self) -> Vec<u8> {
        let options = self.options.as_bytes();
        let tcp_bytes = 20 + options.len() + self.payload.len();
        let mut bytes = Vec::new();
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bytes.extend([0x45, 0]);
                bytes.extend(((20 + tcp_bytes) as u16).to_be_bytes());
                bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                bytes.extend([0x60, 0, 0, 0]);
                bytes.extend((tcp_bytes as u16).to_be_bytes());
                bytes.extend([6, 64]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
            }
            _ => panic!("two families"),
        }
        let header = TcpHeader {
            source_port: self.from.port(),
            target_port: self.to.port(),
            seq: self.seq,
            ack: self.ack.unwrap_or(0),
            header_bytes: 20 + options.len(),
            flags: if self.ack.is_some() { self.flags.and(Flags::ACK) } else { self.flags },
            window: 0xffff,
            checksum: 0,
        };
        bytes.extend(header.to_bytes());
        bytes.extend(options);
        bytes.extend(&self.payload);
        bytes
    }
}

/// Returns a pcap of these frames, little endian, with microseconds.
pub(crate) fn pcap(link_type: u32, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, link_type] {
        bytes.extend(word.to_le_bytes());
    }
    for (time_ns, frame) in frames {
        let length = frame.len() as u32;
        let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        for word in [seconds as u32, (rest / 1000) as u32, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

/// Returns the reports, the totals and the result of reading a capture.
pub(crate) fn analyse(bytes: &[u8]) -> (Vec<ConnectionReport>, Totals, Result<u64, CaptureError>) {
    let mut reports = Vec::new();
    let mut analysis = Analysis::new(|report| reports.push(report));
    let read = read_capture(bytes, |frame| {
        analysis.frame(&frame);
        ControlFlow::Continue(())
    });
    let totals = analysis.finish();
    reports.sort_by_key(|report| report.id);
    (reports, totals, read)
}

/// Returns the report of the only connection of a capture.
pub(crate) fn only(bytes: &[u8]) -> ConnectionReport {
    let (mut reports, _, read) = analyse(bytes);
    assert!(read.is_ok(), "{read:?}");
    assert_eq!(reports.len(), 1);
    reports.remove(0)
}

/// A connection that is written segment by segment.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) now: u64,
    pub(crate) frames: Vec<(u64, Vec<u8>)>,
    version: Version,
    keys: [Key; 2],
    flows: Vec<[SocketAddr; 2]>,
    next: Vec<[u32; 2]>,
}

impl Script {
    /// Creates a script with the first subflow's handshake. Round trips take 20 ms, captured at the client.
    pub(crate) fn new(version: Version) -> Self {
        let mut script = Self {
            now: BEGIN,
            frames: Vec::new(),
            version,
            keys: [Key(0x1111_2222_3333_4444), Key(0x5555_6666_7777_8888)],
            flows: Vec::new(),
            next: Vec::new(),
        };
        let number = if version == Version::V0 { 0 } else { 1 };
        let capable = |sender_key, receiver_key| {
            let capable = MpCapable { sender_key, receiver_key, ..MpCapable::new(number, MpCapable::HMAC) };
            MptcpOption::Capable(capable)
        };
        let [client, server] = script.keys.map(Some);
        let first = client.filter(|_| version == Version::V0);
        script.open(
            ["10.1.0.1:40000", "10.9.0.1:80"],
            [capable(first, None), capable(server, None), capable(client, server)],
        );
        script
    }

    /// Adds a subflow from another address of the client.
    pub(crate) fn join(&mut self) {
        let (nonces, number) = ([7, 9], self.flows.len() as u8);
        let [client, server] = self.keys;
        let syn = Join::Syn {
            backup: false,
            address_id: number,
            token: server.token(self.version),
            nonce: nonces[0],
        };
        let hmac = server.join_hmac(client, nonces[1], nonces[0], self.version);
        let syn_ack = Join::SynAck {
            backup: false,
            address_id: 0,
            hmac: anabranch_mptcp_wire::keys::join_hmac_short(&hmac),
            nonce: nonces[1],
        };
        let ack = Join::Ack { hmac: client.join_hmac(server, nonces[0], nonces[1], self.version) };
        let from = format!("10.1.{number}.1:4000{number}");
        self.open([&from, "10.9.0.1:80"], [syn, syn_ack, ack].map(MptcpOption::Join));
    }

    fn open(&mut self, [client, server]: [&str; 2], [syn, syn_ack, ack]: [MptcpOption<'_>; 3]) {
        let ends = [client.parse().expect("an address"), server.parse().expect("an address")];
        let subflow = self.flows.len();
        self.flows.push(ends);
        self.next.push([1000, 5000]);
        self.send(subflow, 0, Flags::SYN, &[syn], 0, false);
        self.now += 20 * MS;
        self.send(subflow, 1, Flags::SYN, &[syn_ack], 0, true);
        self.send(subflow, 0, Flags::default(), &[ack], 0, true);
    }

    /// Returns a script with two subflows in which TCP, the other subflow and the first subflow repeat data.
    pub(crate) fn with_repeats() -> Self {
        let mut script = Self::new(Version::V1);
        script.join();
        script.data(0, 0, 1000);
        script.data(0, 1000, 1000);
        // TCP sends the data again with the same sequence numbers.
        script.back(0, 1000);
        script.data(0, 1000, 1000);
        // The other subflow carries half of it, in a mapping that begins elsewhere, with 500 bytes that are
        // new.
        script.data(1, 1500, 1000);
        // The first subflow carries the first 300 bytes again, with new sequence numbers.
        script.data(0, 0, 300);
        script
    }

    /// Returns the data sequence number of a side's byte at `offset`.
    pub(crate) fn data_seq(&self, side: usize, offset: u64) -> u64 {
        self.keys[side].initial_data_seq(self.version).wrapping_add(1).wrapping_add(offset)
    }

    /// Returns the HMAC by which a side announces an address without a port.
    pub(crate) fn add_addr_hmac(&self, side: usize, address_id: u8, address: IpAddr) -> u64 {
        self.keys[side].add_addr_hmac(self.keys[1 - side], address_id, address, None)
    }

    /// Sends a segment with these options and `bytes` bytes of payload.
    pub(crate) fn send(
        &mut self,
        subflow: usize,
        side: usize,
        flags: Flags,
        options: &[MptcpOption<'_>],
        bytes: usize,
        has_ack: bool,
    ) {
        let ends = self.flows[subflow];
        let [seq, ack] =
            if side == 0 { self.next[subflow] } else { [self.next[subflow][1], self.next[subflow][0]] };
        let mut packet = Packet {
            from: ends[side],
            to: ends[1 - side],
            seq,
            ack: has_ack.then_some(ack),
            flags,
            options: OptionBuffer::default(),
            payload: vec![0; bytes],
        };
        packet.options(options);
        let spent = bytes as u32 + u32::from(flags.has(Flags::SYN) || flags.has(Flags::FIN));
        self.next[subflow][side] = seq.wrapping_add(spent);
        self.frames.push((self.now, packet.ip()));
    }

    /// Sends data `offset..offset + bytes` of the client on a subflow, with its mapping.
    pub(crate) fn data(&mut self, subflow: usize, offset: u64, bytes: u16) {
        self.data_of(0, subflow, offset, bytes);
    }

    /// Sends data `offset..offset + bytes` of the server on a subflow, with its mapping.
    pub(crate) fn server_data(&mut self, subflow: usize, offset: u64, bytes: u16) {
        self.data_of(1, subflow, offset, bytes);
    }

    fn data_of(&mut self, side: usize, subflow: usize, offset: u64, bytes: u16) {
        let mapping = DssMapping {
            data_seq: DataNumber::Full(self.data_seq(side, offset)),
            subflow_seq: self.next[subflow][side].wrapping_sub([1000, 5000][side]),
            data_bytes: bytes,
            checksum: None,
        };
        let dss = Dss { mapping: Some(mapping), ..Dss::default() };
        self.send(subflow, side, Flags::default(), &[MptcpOption::Dss(dss)], usize::from(bytes), true);
    }

    /// Acknowledges all of the client's data below `offset`.
    pub(crate) fn data_ack(&mut self, subflow: usize, offset: u64) {
        let data_ack = Some(DataNumber::Short(self.data_seq(0, offset) as u32));
        let dss = Dss { data_ack, ..Dss::default() };
        self.send(subflow, 1, Flags::default(), &[MptcpOption::Dss(dss)], 0, true);
    }

    /// Goes back on a subflow, so that the next segment is a TCP retransmission.
    pub(crate) fn back(&mut self, subflow: usize, bytes: u32) {
        self.next[subflow][0] = self.next[subflow][0].wrapping_sub(bytes);
    }

    pub(crate) fn report(&self) -> ConnectionReport {
        only(&pcap(101, &self.frames))
    }
}
