//! Reads what the captures of a test tell.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;

use anabranch_trace::report::{Directions, HalfReport, StreamReport, SubflowReport};
use anabranch_trace::{Analysis, ConnectionReport, Quantiles, Side, read_capture};

use crate::network::Interface;
use crate::results::{Captured, Sent};

/// The fewest round trips of a subflow whose median counts, as in the study of 2016.
const SAMPLES_MIN: u64 = 3;

/// Reads the captures of the phone and of the server; `address` tells the interface of the phone's address.
/// The data of each direction is told by the capture at its sender.
///
/// # Errors
/// If a capture cannot be read, or is damaged.
pub fn read(
    phone: &Path,
    server: &Path,
    address: impl Fn(IpAddr) -> Option<Interface>,
) -> io::Result<Captured> {
    let mut captured = Captured::default();
    each(phone, |report| from_phone(&mut captured, report, &address))?;
    each(server, |report| from_server(&mut captured, report, &address))?;
    Ok(captured)
}

fn each(path: &Path, each: impl FnMut(ConnectionReport)) -> io::Result<()> {
    let said = |e: String| io::Error::other(format!("{}: {e}", path.display()));
    let file = File::open(path).map_err(|e| said(e.to_string()))?;
    let mut analysis = Analysis::new(each);
    let read = read_capture(file, |frame| {
        analysis.frame(&frame);
        ControlFlow::Continue(())
    });
    analysis.finish();
    read.map(drop).map_err(|e| said(e.to_string()))
}

fn data(halves: &Directions<HalfReport>) -> u64 {
    halves.up.unique_bytes + halves.down.unique_bytes
}

fn from_phone(
    captured: &mut Captured,
    report: ConnectionReport,
    address: &impl Fn(IpAddr) -> Option<Interface>,
) {
    let mut on = [0_u64; 2];
    for (number, subflow) in report.subflows.iter().enumerate() {
        let bytes = data(&subflow.halves);
        if number > 0 && bytes == 0 {
            captured.unused_subflows += 1;
        }
        let Some(interface) = address(subflow.client.ip()) else { continue };
        on[interface as usize] += bytes;
        *captured.data_bytes.entry(interface).or_default() += bytes;
        if let Some(median) = median_ms(subflow, Side::Client) {
            captured.rtt_ms.entry(interface).or_default().up.push(median);
        }
    }
    let bytes = report.bytes();
    let connections = &mut captured.connections;
    let kind = match on {
        [0, 0] => {
            connections.empty += 1;
            return;
        }
        [_, 0] => &mut connections.wifi,
        [0, _] => &mut connections.cell,
        _ => &mut connections.both,
    };
    *kind = (kind.0 + 1, kind.1 + bytes);
    captured.handovers += report.handovers.len() as u64;
    add(&mut captured.up, &report.streams.up);
}

fn from_server(
    captured: &mut Captured,
    report: ConnectionReport,
    address: &impl Fn(IpAddr) -> Option<Interface>,
) {
    for subflow in &report.subflows {
        let interface = address(subflow.client.ip());
        if let Some((interface, median)) = interface.zip(median_ms(subflow, Side::Server)) {
            captured.rtt_ms.entry(interface).or_default().down.push(median);
        }
    }
    add(&mut captured.down, &report.streams.down);
}

/// Returns the median round-trip time of a subflow's data in a direction, ms with two decimals.
fn median_ms(subflow: &SubflowReport, sender: Side) -> Option<f64> {
    let round_trips: Quantiles = subflow.halves.from(sender).rtt_us?;
    (round_trips.samples >= SAMPLES_MIN).then(|| (round_trips.p50 as f64 / 10.0).round() / 100.0)
}

fn add(sent: &mut Sent, stream: &StreamReport) {
    sent.unique_bytes += stream.unique_bytes;
    sent.reinjected_bytes += stream.reinjected_bytes;
    sent.retransmitted_bytes += stream.retransmitted_bytes;
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use super::*;

    const SERVER: [u8; 4] = [10, 1, 255, 1];
    const SYN: u8 = 2;
    const ACK: u8 = 16;

    /// Appends a record of a capture: a TCP segment in an IPv4 packet, `at` microseconds after the first.
    fn segment(
        capture: &mut Vec<u8>,
        at: u32,
        [from, to]: [[u8; 4]; 2],
        flags: u8,
        numbers: [u32; 2],
        data: u16,
    ) {
        let ports: [u16; 2] = if to == SERVER { [40_000, 80] } else { [80, 40_000] };
        let length = 40 + data;
        for word in [1_700_000_000, at, u32::from(length), u32::from(length)] {
            capture.extend(word.to_le_bytes());
        }
        capture.extend([0x45, 0]);
        capture.extend(length.to_be_bytes());
        capture.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        capture.extend(from.into_iter().chain(to));
        ports.iter().for_each(|port| capture.extend(port.to_be_bytes()));
        numbers.iter().for_each(|number| capture.extend(number.to_be_bytes()));
        capture.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
        capture.resize(capture.len() + usize::from(data), 7);
    }

    /// Makes a capture of a connection over WiFi with 100 bytes up and 50 down, and of one over the mobile
    /// interface without data.
    fn capture() -> Vec<u8> {
        let mut capture = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
            capture.extend(word.to_le_bytes());
        }
        let (wifi, cell) = ([10, 1, 0, 1], [10, 1, 1, 1]);
        for (at, phone) in [(0, wifi), (100_000, cell)] {
            let (up, down) = ([phone, SERVER], [SERVER, phone]);
            segment(&mut capture, at, up, SYN, [0, 0], 0);
            segment(&mut capture, at + 14_000, down, SYN | ACK, [0, 1], 0);
            segment(&mut capture, at + 14_010, up, ACK, [1, 1], 0);
            if phone == wifi {
                segment(&mut capture, at + 14_020, up, ACK, [1, 1], 100);
                segment(&mut capture, at + 28_000, down, ACK, [1, 101], 50);
                segment(&mut capture, at + 28_010, up, ACK, [101, 51], 0);
            }
        }
        capture
    }

    fn interface(address: IpAddr) -> Option<Interface> {
        match address {
            IpAddr::V4(ip) if ip == Ipv4Addr::new(10, 1, 0, 1) => Some(Interface::Wifi),
            IpAddr::V4(ip) if ip == Ipv4Addr::new(10, 1, 1, 1) => Some(Interface::Cell),
            _ => None,
        }
    }

    #[test]
    fn connections_are_told_apart_by_their_interface() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("phone.pcap");
        fs::write(&file, capture()).expect("written");
        let captured = read(&file, &file, interface).expect("a capture");
        let connections = captured.connections;
        assert_eq!((connections.wifi, connections.cell, connections.both), ((1, 150), (0, 0), (0, 0)));
        assert_eq!((connections.empty, connections.count(), connections.bytes()), (1, 1, 150));
        assert_eq!((captured.up.unique_bytes, captured.down.unique_bytes), (100, 50));
        assert_eq!(captured.data_bytes[&Interface::Wifi], 150);
        assert!(captured.rtt_ms.is_empty(), "one round trip is too few");
    }

    #[test]
    fn a_damaged_capture_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("phone.pcap");
        fs::write(&file, b"no capture").expect("written");
        let error = read(&file, &file, interface).expect_err("no capture").to_string();
        assert!(error.contains("phone.pcap"), "{error}");
    }
}
