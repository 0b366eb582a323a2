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
