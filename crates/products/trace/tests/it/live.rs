//! A transfer of this machine's kernel, captured at both ends and read at once.

use std::fs;
use std::process::Command;

use anabranch_net::testing::{is_privileged, refused, skip};
use anabranch_trace::both_ends::BothEnds;
use anabranch_trace::{Capture, Protocol};

use crate::wire::only;

#[test]
fn a_transfer_of_this_kernel() {
    if !is_privileged() {
        return skip("a capture of the kernel: network namespaces need root");
    }
    if !fs::exists("/proc/sys/net/mptcp/enabled").unwrap_or(false) {
        return skip("a capture of the kernel: it has no Multipath TCP");
    }
    let folder = std::env::temp_dir().join(format!("anabranch-trace-{}", std::process::id()));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/make.py");
    let made = Command::new("python3").arg(script).arg("--to").arg(&folder).arg("small").output();
    let made = match made {
        Ok(made) if made.status.success() => String::from_utf8_lossy(&made.stdout).into_owned(),
        Ok(made) => {
            return refused(format!("a capture of the kernel: {}", String::from_utf8_lossy(&made.stderr)));
        }
        Err(e) => return skip(format!("a capture of the kernel needs python3 ({e})")),
    };
    let [client, server] = ["client", "server"]
        .map(|end| fs::read(folder.join(format!("small_{end}.pcap"))).expect("a capture"));
    let _ = fs::remove_dir_all(&folder);
    // The sockets say how much they sent and received, and the tap says that it lost no frame.
    assert!(made.contains("'sent': 300000") && made.contains("'bytes': 300000"), "{made}");
    assert_eq!(made.matches(" 0 lost by the tap").count(), 2, "{made}");
    for capture in [&client, &server] {
        let report = only(capture);
        assert_eq!((report.protocol, report.begin_seen), (Protocol::Mptcp1, true));
        let up = &report.streams.up;
        assert_eq!((up.unique_bytes, up.acked_bytes, up.missing_bytes), (300_000, 300_000, 0), "{made}");
        let wrong = report.subflows.iter().filter(|subflow| subflow.hmac_is_right == Some(false));
        assert_eq!(wrong.count(), 0);
    }
    let mut both = BothEnds::default();
    let open = |bytes| Capture::open(bytes).expect("a capture");
    let ends = both.read([open(&client[..]), open(&client)], [open(&server[..]), open(&server)], || false);
    assert!(ends.iter().all(Result::is_ok));
    let report = both.report();
    // Both captures have one clock; each way takes at least 10 ms.
    let (ahead, error) =
        (report.server_ahead_ms.expect("both ways"), report.error_max_ms.expect("both ways"));
    assert!(ahead.abs() <= error && error >= 10.0, "{report:?}");
    assert!(report.flows[0].ways.up.delay_us.is_some_and(|delay| delay.p50 >= 8000), "{report:?}");
}
