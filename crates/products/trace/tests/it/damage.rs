//! Invalid captures and captures that end too early: an error says where, and everything before it is
//! reported.

use std::io::Read;
use std::ops::ControlFlow;

use anabranch_mptcp_wire::Version;
use anabranch_trace::{CaptureError, read_capture};

use crate::wire::{Script, analyse, pcap};

fn sound() -> Vec<u8> {
    let mut script = Script::new(Version::V1);
    script.data(0, 0, 100);
    script.data_ack(0, 100);
    pcap(101, &script.frames)
}

#[test]
fn what_is_no_capture() {
    let error = |bytes: &[u8]| analyse(bytes).2.expect_err("no capture");
    assert!(matches!(error(b""), CaptureError::Empty));
    assert!(matches!(error(b"GIF89a, and more than a header needs"), CaptureError::NotACapture(_)));
    assert!(matches!(error(&[0; 100]), CaptureError::NotACapture(_)));
    assert!(matches!(error(&sound()[..20]), CaptureError::CutOff { offset: 0, number: 0 }));
    assert!(error(b"GIF89a, and more than a header needs").to_string().contains("47, 49, 46, 38"));
}

#[test]
fn a_cut_file_is_reported_up_to_the_cut() {
    let bytes = sound();
    let whole = analyse(&bytes);
    assert_eq!((whole.1.segments, whole.0[0].streams.up.unique_bytes), (5, 100));
    let mut cut = 0;
    for end in 24..bytes.len() {
        let (reports, totals, read) = analyse(&bytes[..end]);
        assert!(totals.segments <= 5 && reports.len() <= 1);
        match read {
            Ok(frames) => assert_eq!(frames, totals.frames),
            Err(CaptureError::CutOff { offset, number }) => {
                assert!(offset < end as u64 && number == totals.frames + 1);
                cut += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(cut > 300);
}

#[test]
fn zeros_and_impossible_lengths_say_where() {
    let mut bytes = sound();
    let at = bytes.len() as u64;
    bytes.extend(vec![0; 1 << 20]);
    let (reports, _, read) = analyse(&bytes);
    let error = read.expect_err("zeros");
    assert!(matches!(error, CaptureError::Damaged { offset, number: 6, .. } if offset == at), "{error}");
    assert_eq!(reports[0].streams.up.unique_bytes, 100);
    let mut bytes = sound();
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f]);
    bytes.extend(vec![1; 20 << 20]);
    let error = analyse(&bytes).2.expect_err("a record of 2 GiB");
    assert!(error.to_string().starts_with(&format!("damaged at byte {at} (frame 6)")), "{error}");
}

/// A reader that gives a few bytes at a time.
struct Drips<'a>(&'a [u8], usize);

impl Read for Drips<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.1);
        self.0.read(&mut buffer[..count])
    }
}

/// A pipe and a file are judged alike: by the length that a record claims, not by the bytes that have
/// arrived.
#[test]
fn how_an_input_is_cut_into_reads_changes_nothing() {
    let pcapng = [&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..]];
    let pcapng = [&pcapng.concat()[..], &[0xff; 8], &[28, 0, 0, 0]].concat();
    for claimed in [60, 1 << 18, 1 << 20, (1 << 24) - 64, (1 << 24) + 4, 1 << 25, 0xffff_fff0_u32] {
        let record = [&[1, 0, 0, 0, 2, 0, 0, 0][..], &claimed.to_le_bytes(), &claimed.to_le_bytes()].concat();
        let block = [&[6, 0, 0, 0][..], &claimed.to_le_bytes()].concat();
        for short in [vec![7; 4], vec![7; 50], vec![7; 300_000]] {
            let pcap = [sound(), record.clone(), short.clone()].concat();
            for input in [pcap, [&pcapng[..], &block, &short].concat()] {
                let whole = format!("{:?}", analyse(&input).2);
                for step in [1, 7, 5000] {
                    let read = read_capture(Drips(&input, step), |_| ControlFlow::Continue(()));
                    assert_eq!(format!("{read:?}"), whole, "{claimed} claimed, {} there", short.len());
                }
                assert!(claimed <= 1 << 24 || whole.contains("longer than any"), "{claimed}: {whole}");
            }
        }
    }
}
