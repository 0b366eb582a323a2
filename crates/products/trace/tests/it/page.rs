//! The report as an HTML page.

use std::ops::ControlFlow;

use anabranch_mptcp_wire::Version;
use anabranch_trace::plot::Kind;
use anabranch_trace::summary::Summary;
use anabranch_trace::{Analysis, html, read_capture};

use crate::wire::{MS, Script, pcap};

fn page(name: &str, capture: &[u8]) -> String {
    let mut summary = Summary::default();
    let mut analysis = Analysis::new(|report| summary.add(report)).with_plots();
    read_capture(capture, |frame| {
        analysis.frame(&frame);
        ControlFlow::Continue(())
    })
    .expect("a capture");
    let totals = analysis.finish();
    let mut out = Vec::new();
    html::write(&mut out, name, &summary, &totals).expect("memory");
    String::from_utf8(out).expect("text")
}

#[test]
fn marks_are_what_the_definitions_say() {
    let mut script = Script::with_repeats();
    script.now += 5 * MS;
    script.data(1, 3000, 1000);
    script.data_ack(0, 2500);
    let mut plots = Vec::new();
    let mut analysis = Analysis::new(|report| plots.extend(report.streams.up.plot)).with_plots();
    read_capture(&pcap(101, &script.frames)[..], |frame| {
        analysis.frame(&frame);
        ControlFlow::Continue(())
    })
    .expect("a capture");
    analysis.finish();
    let marks: Vec<_> = plots[0].marks.iter().map(|m| (m.kind, m.subflow, m.bytes)).collect();
    // The first two packets are one mark, because they are in one slot.
    let wanted = [
        (Kind::New, 0, (0, 2000)),
        (Kind::Retransmitted, 0, (1000, 2000)),
        (Kind::Reinjected, 1, (1500, 2000)),
        (Kind::New, 1, (2000, 2500)),
        (Kind::Resent, 0, (0, 300)),
        (Kind::New, 1, (3000, 4000)),
        (Kind::Acknowledged, 0, (0, 2500)),
        (Kind::Missing, 0, (2500, 3000)),
    ];
    assert_eq!(marks, wanted);
}

#[test]
fn a_page_is_whole_loads_nothing_and_escapes_names() {
    let path = format!("{}/tests/captures/handover_up_client.pcap", env!("CARGO_MANIFEST_DIR"));
    let capture = std::fs::read(path).expect("a capture");
    let hostile = "</title><script>alert(1)</script>\"'&\u{202e}\u{1b}[2J.pcap";
    let html = page(hostile, &capture);
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(!html.contains("<script>alert") && !html.contains(['\u{202e}', '\u{1b}']));
    assert!(
        html.contains(
            "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\u{fffd}\u{fffd}[2J"
        )
    );
    for loads in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(loads), "{loads}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(html.contains("HANDOVER at ") && html.contains("handover 0 → 1") && html.contains("join 1"));
    // The data of each plot is JSON, and each mark has six numbers.
    let data: Vec<&str> = html.split("<script type=\"application/json\">").skip(1).collect();
    assert_eq!(data.len(), 1);
    let json = data[0].split("</script>").next().expect("an end");
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(json["marks"].as_array().map(|marks| marks.len() % 6), Some(0));
    assert_eq!(json["bytes"], 983_040);
}

/// A capture of twenty seconds with 10,000 packets a second gives a page far below 5 MB.
#[test]
fn a_page_of_a_large_capture_is_small() {
    let mut script = Script::new(Version::V1);
    script.join();
    for packet in 0..200_000_u64 {
        script.data((packet % 2) as usize, packet * 100, 100);
        script.now += MS / 10;
        if packet % 2 == 1 {
            script.data_ack((packet % 2) as usize, (packet + 1) * 100);
        }
    }
    let html = page("large", &pcap(101, &script.frames));
    assert!((60_000..300_000).contains(&html.len()), "{}", html.len());
}
