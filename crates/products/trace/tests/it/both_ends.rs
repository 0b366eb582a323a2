//! Two captures of one transfer.

use anabranch_mptcp_wire::Version;
use anabranch_trace::Capture;
use anabranch_trace::both_ends::{BothEnds, BothEndsReport};

use crate::wire::{MS, Script, pcap};

fn merged(client: &[u8], server: &[u8]) -> BothEndsReport {
    let mut both = BothEnds::default();
    let open = |bytes| Capture::open(bytes).expect("a capture");
    let ends = both.read([open(client), open(client)], [open(server), open(server)], || false);
    assert!(ends.iter().all(Result::is_ok));
    both.report()
}

/// The ways take 30 ms to the server and 20 ms back; the server's clock is 7 hours ahead. Every tenth packet
/// of the first subflow is lost and sent again half a second later.
#[test]
fn delays_clocks_and_losses_of_a_script() {
    const AHEAD: u64 = 7 * 3_600_000 * MS;
    let mut script = Script::new(Version::V1);
    script.join();
    for packet in 0..200_u32 {
        script.now += 10 * MS;
        script.data((packet % 2) as usize, u64::from(packet) * 1000, 1000);
    }
    script.now += 100 * MS;
    script.data_ack(0, 200_000);
    // The client's capture has the server's frames 20 ms after they were sent, the server's has the client's
    // after 30 ms.
    let is_of_client = |frame: &[u8]| frame[12..14] == [10, 1];
    let mut number = 0;
    let (mut client, mut server) = (Vec::new(), Vec::new());
    for (time, frame) in &script.frames {
        if is_of_client(frame) {
            client.push((*time, frame.clone()));
            number += u32::from(frame.len() > 1000);
            if frame.len() > 1000 && number % 20 == 1 {
                client.push((time + 500 * MS, frame.clone()));
                server.push((time + 530 * MS + AHEAD, frame.clone()));
            } else {
                server.push((time + 30 * MS + AHEAD, frame.clone()));
            }
        } else {
            server.push((*time + AHEAD, frame.clone()));
            client.push((time + 20 * MS, frame.clone()));
        }
    }
    client.sort_by_key(|(time, _)| *time);
    server.sort_by_key(|(time, _)| *time);
    let report = merged(&pcap(101, &client), &pcap(101, &server));
    // Half of the 10 ms by which the ways differ is taken for a difference of the clocks.
    let hours = 7.0 * 3_600_000.0;
    assert_eq!(report.server_ahead_ms, Some(hours + 5.0));
    assert_eq!(report.error_max_ms, Some(25.0));
    assert_eq!((report.flows.len(), report.flows_of_one, report.left_out), (2, 0, 0));
    let up = &report.flows[0].ways.up;
    assert_eq!((up.sent_bytes, up.arrived_bytes, up.lost_bytes), (110_000, 100_000, 10_000));
    let delay = up.delay_us.expect("samples");
    assert!(delay.min == 25_000 && delay.p99 <= 25_020 && delay.samples >= 90, "{delay:?}");
    let second = &report.flows[1].ways.up;
    assert_eq!((second.lost_bytes, second.packets.0), (0, second.packets.1));
    assert_eq!(report.flows[1].ways.down.delay_us.map(|delay| delay.min), Some(25_000));
    let text = report.text();
    assert!(
        text.contains("the server's clock is 25200005.000 ms ahead") && text.contains("9.09 %"),
        "{text}"
    );
}

/// A download whose first link dies. Both captures are of one host, so the clocks agree.
#[test]
fn both_captures_of_the_kernel() {
    let capture = |end: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");
        std::fs::read(format!("{folder}/handover_down_{end}.pcap")).expect("a capture")
    };
    let report = merged(&capture("client"), &capture("server"));
    assert_eq!((report.flows.len(), report.flows_of_one), (2, 0));
    let ahead = report.server_ahead_ms.expect("both ways");
    assert!(ahead.abs() < 1.0, "{ahead}");
    // The links take 10 ms and 20 ms, and their queues at most 150 ms.
    for (flow, link_us) in report.flows.iter().zip([10_000, 20_000]) {
        let delay = flow.ways.down.delay_us.expect("samples");
        assert!((link_us..link_us + 12_000).contains(&delay.min), "{delay:?}");
        assert!(delay.p99 < link_us + 175_000 && delay.p50 > delay.min, "{delay:?}");
    }
    // These bytes were lost with the dead link: see the unique and repeated bytes of both captures in
    // kernel.rs.
    let lost: Vec<_> = report.flows.iter().map(|flow| flow.ways.down.lost_bytes).collect();
    let sent = |bytes: [u64; 4]| bytes.iter().sum::<u64>();
    let first = sent([371_040, 3040, 0, 0]) - sent([344_720, 0, 0, 0]);
    let second = sent([546_464, 14_200, 26_320, 163_840]) - sent([572_784, 0, 0, 163_840]);
    assert_eq!(lost, [first, second]);
}

/// One capture begins late or ends early. The additional bytes of the other one are not lost.
#[test]
fn what_one_capture_missed_is_not_lost() {
    let mut script = Script::new(Version::V1);
    for packet in 0..100 {
        script.now += 10 * MS;
        script.data(0, packet * 1000, 1000);
    }
    let late = |frames: &[(u64, Vec<u8>)]| {
        let frames: Vec<_> = frames.iter().map(|(time, frame)| (time + 5 * MS, frame.clone())).collect();
        pcap(101, &frames)
    };
    let client = pcap(101, &script.frames);
    for part in [0..60, 43..103] {
        let report = merged(&client, &late(&script.frames[part]));
        let up = &report.flows[0].ways.up;
        // At the end of the shorter capture, a packet was on its way.
        assert!(up.arrived_bytes >= 57_000 && up.lost_bytes <= 1000, "{up:?}");
    }
}

#[test]
fn captures_of_different_transfers_have_nothing_in_common() {
    let mut script = Script::new(Version::V1);
    script.data(0, 0, 100);
    let capture = |name: &str| {
        std::fs::read(format!("{}/tests/captures/{name}.pcap", env!("CARGO_MANIFEST_DIR")))
            .expect("a capture")
    };
    let report = merged(&pcap(101, &script.frames), &capture("small_client"));
    assert_eq!((report.flows.len(), report.flows_of_one), (0, 3));
    assert_eq!((report.server_ahead_ms, report.error_max_ms), (None, None));
}

type Frames = Vec<(u64, Vec<u8>)>;

/// The frames of a script at both ends: 30 ms to the server and 20 ms back; its clock is `ahead` ahead.
fn at_both_ends(script: &Script, ahead: u64) -> [Frames; 2] {
    const BEGIN: u64 = 10_000 * MS;
    let is_of_client = |frame: &[u8]| frame[12..14] == [10, 1];
    let (mut client, mut server) = (Vec::new(), Vec::new());
    for (time, frame) in &script.frames {
        let delays = if is_of_client(frame) { (0, 30 * MS) } else { (20 * MS, 0) };
        client.push((BEGIN + time + delays.0, frame.clone()));
        server.push((BEGIN + time + delays.1 + ahead, frame.clone()));
    }
    client.sort_by_key(|(time, _)| *time);
    server.sort_by_key(|(time, _)| *time);
    [client, server]
}

/// A client sends 100 packets, every tenth of which is lost.
fn lossy(ahead: u64) -> [Frames; 2] {
    let mut script = Script::new(Version::V1);
    for packet in 0..100 {
        script.now += 10 * MS;
        script.data(0, packet * 1000, 1000);
    }
    let [client, mut server] = at_both_ends(&script, ahead);
    let mut number = 0;
    server.retain(|(_, frame)| {
        number += u32::from(frame.len() > 1000);
        frame.len() <= 1000 || number % 10 != 0
    });
    [client, server]
}

/// What arrived before the sender's capture began does not make up for what was lost later.
#[test]
fn a_late_capture_of_the_sender_hides_no_losses() {
    let [mut client, server] = lossy(0);
    let handshake = client.iter().take_while(|(_, frame)| frame.len() <= 1000).count();
    client.drain(..handshake + 50);
    let report = merged(&pcap(101, &client), &pcap(101, &server));
    let up = &report.flows[0].ways.up;
    assert!((50_000..=51_000).contains(&up.sent_bytes), "{up:?}");
    // Five of them, but for up to four packets that were on their way when the capture began.
    assert!((1000..=5000).contains(&up.lost_bytes), "{up:?}");
}

/// The host that opens the flow is at the second capture.
#[test]
fn a_host_that_answers_can_be_at_the_first_capture() {
    let [client, server] = lossy(7000 * MS);
    let report = merged(&pcap(101, &server), &pcap(101, &client));
    let down = &report.flows[0].ways.down;
    // The last packet was sent when the other capture had ended.
    assert!(down.sent_bytes >= 95_000 && down.arrived_bytes == 90_000, "{down:?}");
    assert_eq!(down.lost_bytes, down.sent_bytes - down.arrived_bytes);
    assert!(report.flows[0].client.to_string().starts_with("10.9."), "{report:?}");
    assert_eq!(report.server_ahead_ms, Some(-7005.0));
    assert!(!report.text().contains("more arrived"));
}

/// The first SYN is lost, so that by this handshake the clocks would differ by a second more.
#[test]
fn the_quickest_handshake_compares_the_clocks() {
    let mut script = Script::new(Version::V1);
    script.join();
    for packet in 0..50_u32 {
        script.now += 10 * MS;
        script.data((packet % 2) as usize, u64::from(packet) * 1000, 1000);
    }
    let [mut client, server] = at_both_ends(&script, 7000 * MS);
    let (time, syn) = client[0].clone();
    client.insert(0, (time - 2000 * MS, syn));
    let report = merged(&pcap(101, &client), &pcap(101, &server));
    assert_eq!(report.server_ahead_ms, Some(7005.0));
    let delay = report.flows[0].ways.up.delay_us.expect("samples");
    assert!(delay.samples >= 25 && delay.min == 25_000, "{delay:?}");
}

/// The only handshake is slow, so that everything seems to arrive before it was sent.
#[test]
fn arrivals_that_seem_early_wait_for_what_was_sent() {
    let [mut client, server] = lossy(7000 * MS);
    let (time, syn) = client[0].clone();
    client.insert(0, (time - 2000 * MS, syn));
    let report = merged(&pcap(101, &client), &pcap(101, &server));
    assert_eq!(report.server_ahead_ms, Some(7005.0));
    let samples = report.flows[0].ways.up.delay_us.expect("samples").samples;
    assert!(samples >= 90, "{samples}");
}
