//! A second implementation reads what we send: tshark decodes every packet of a transfer with the kernel, and
//! finds no error.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_mptcp::Config;
use anabranch_net::testing;

use crate::bed::Bed;
use crate::transfer::{ONE, Plan, with_kernel_client, with_kernel_server};

/// How long the capture may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(3);

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
        let since = Instant::now();
        while fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
            assert!(since.elapsed() < PATIENCE, "the capture does not begin");
            thread::sleep(Duration::from_millis(20));
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
    let fields = ["-T", "fields", "-e", "frame.number", "-e", "_ws.expert.message", "-Y", filter];
    let output = Command::new("tshark").arg("-r").arg(file).args(fields).output().expect("tshark");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn tshark_decodes_every_packet_without_an_error() {
    for (is_server, v6, checksums) in [(false, false, true), (true, true, false)] {
        let Some(bed) = Bed::new() else { return };
        let Some(capture) = Capture::begin(&bed, if is_server { "server" } else { "client" }) else { return };
        // A small buffer keeps the kernel from finishing before it has made its second subflow.
        let config = Config { checksums, receive_buffer_bytes: 100_000, ..Config::default() };
        let plan = Plan { v6, links: 2, bytes: 400_000, holds: is_server, ..ONE };
        let seen = if is_server {
            with_kernel_client(&bed, config, plan, true, |_, _, seen| seen.ups() >= 2)
        } else {
            with_kernel_server(&bed, config, plan, |_, _, seen| seen.ups() >= 2)
        };
        let file = capture.end();
        let found = packets(&file, "_ws.expert.severity == error || _ws.malformed");
        let (with_dss, joins) = (
            packets(&file, "tcp.options.mptcp.subtype == 2").len(),
            packets(&file, "tcp.options.mptcp.subtype == 1").len(),
        );
        fs::remove_file(&file).expect("the capture");
        if !seen.read.is_empty() {
            assert!(with_dss > 200 && joins >= 3, "{with_dss} packets with a DSS, {joins} with MP_JOIN");
        }
        assert!(found.is_empty(), "{} packets: {:?}", found.len(), &found[..found.len().min(5)]);
    }
}
