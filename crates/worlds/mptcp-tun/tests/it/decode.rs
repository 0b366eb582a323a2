//! A second implementation reads what we send: tshark decodes every packet of a transfer with the kernel, and
//! finds no error.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anabranch_mptcp::Config;
use anabranch_net::testing;

use crate::bed::{Bed, PORT};
use crate::transfer::{ONE, Plan, with_kernel_server};

/// How often, and how many times, the capture is looked for before it must have begun.
const TURN: Duration = Duration::from_millis(20);
const TURNS_MAX: u32 = 250;

/// A capture of all packets in a namespace.
struct Capture {
    child: Child,
    file: PathBuf,
}

impl Capture {
    /// Begins a capture. Returns `None`, counted as a skip, if tshark is not installed.
    fn begin(bed: &Bed, name: &str) -> Option<Self> {
        let file = std::env::temp_dir().join(format!("anabranch-{}-{name}.pcapng", std::process::id()));
        let begin = || {
            let mut command = Command::new("dumpcap");
            command.args(["-q", "-i", "any", "-w"]).arg(&file);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        let Ok(child) = bed.namespace.run(begin).expect("the namespace") else {
            testing::skip("tshark, which brings dumpcap, is not installed");
            return None;
        };
        for turn in 0.. {
            if fs::metadata(&file).is_ok_and(|file| file.len() > 0) {
                break;
            }
            assert!(turn < TURNS_MAX, "the capture does not begin");
            thread::sleep(TURN);
        }
        Some(Self { child, file })
    }

    /// Ends the capture and returns its file.
    fn end(mut self) -> PathBuf {
        thread::sleep(Duration::from_millis(200));
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().expect("kill");
        self.child.wait().expect("dumpcap");
        self.file
    }
}

/// Returns the lines that tshark prints for the packets that pass a filter: the number and what it found.
fn packets(file: &Path, filter: &str) -> Vec<String> {
    let fields = ["number", "protocols"].map(|field| format!("frame.{field}"));
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields", "-e", "_ws.expert.message", "-Y", filter]);
    for field in fields {
        command.args(["-e", &field]);
    }
    // Our data is random, and other protocols would be seen in it.
    command.args(["-d", &format!("tcp.port=={PORT},data")]);
    let output = command.output().expect("tshark");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn tshark_decodes_every_packet_without_an_error() {
    let Some(bed) = Bed::new() else { return };
    let Some(capture) = Capture::begin(&bed, "client") else { return };
    let config = Config { checksums: true, receive_buffer_bytes: 100_000, ..Config::default() };
    let plan = Plan { links: 2, bytes: 400_000, ..ONE };
    let seen = with_kernel_server(&bed, config, plan, |_, _, seen| seen.ups() >= 2);
    let file = capture.end();
    let found = packets(&file, "_ws.expert.severity == error || _ws.malformed");
    let [joins, with_dss] =
        [1, 2].map(|kind| packets(&file, &format!("tcp.options.mptcp.subtype == {kind}")).len());
    fs::remove_file(&file).expect("the capture");
    if !seen.read.is_empty() {
        assert!(with_dss > 200 && joins >= 3, "{with_dss} packets with a DSS, {joins} with MP_JOIN");
    }
    assert!(found.is_empty(), "{} packets: {:?}", found.len(), &found[..found.len().min(5)]);
}
