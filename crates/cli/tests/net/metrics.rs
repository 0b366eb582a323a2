//! Tests of the metrics of a publish/subscribe network's members as Prometheus reads them: programs on
//! loopback.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::{anabranch, wait_until};

const DOMAIN: &str = r#"
name = "counted"
forwarders = ["r1", "r2"]
[rendezvous]
node = "rv"
[topology]
node = "tm"
[scopes]
films = "GEOCV2BQS65VZKVJEN2YJWPJPQJX4SIEBHFOJN4OOWUZQV6NE7WQ"
[[line]]
between = ["a", "r1"]
addresses = ["127.92.40.1", "127.92.40.2"]
[[line]]
between = ["r1", "rv"]
addresses = ["127.92.40.3", "127.92.40.4"]
[[line]]
between = ["r1", "tm"]
addresses = ["127.92.40.5", "127.92.40.6"]
[[line]]
between = ["r1", "r2"]
addresses = ["127.92.40.7", "127.92.40.8"]
"#;

/// A running member. Dropping it ends it.
struct Member {
    child: Child,
    metrics: String,
}

impl Member {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = anabranch();
        command.args(args).args(["--domain", "net.toml", "--prometheus", "0"]).current_dir(dir);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        let metrics = line.trim().strip_prefix("metrics at http://").expect("where the metrics are");
        let metrics = metrics.strip_suffix("/metrics").expect("a path").to_owned();
        // The rest of the output is read, so that the member never waits for a reader.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { child, metrics }
    }

    /// Reads the metrics as Prometheus does.
    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).expect("it listens");
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.metrics);
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        anabranch_net::prometheus::check(body);
        body.to_owned()
    }

    fn has(&self, sample: &str) -> bool {
        self.scrape().lines().any(|line| line == sample)
    }

    fn wait(&self, sample: &str) {
        wait_until(20, || self.has(sample));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn counters_are_scraped_from_running_members() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("net.toml"), DOMAIN).expect("a file");
    let start = |args: &[&str]| Member::start(dir.path(), args);
    let r1 = start(&["forward", "--node", "r1", "--cache", "8M"]);
    let (rv, tm) = (start(&["rendezvous", "--node", "rv"]), start(&["topology", "--node", "tm"]));
    for (member, node, role) in [(&r1, "r1", "forwarder"), (&rv, "rv", "rendezvous"), (&tm, "tm", "topology")]
    {
        member
            .wait(&format!("anabranch_member_info{{domain=\"counted\",node=\"{node}\",role=\"{role}\"}} 1"));
    }
    // r2 does not run, and r1 reports that.
    tm.wait("anabranch_topology_forwarders 1");
    tm.wait("anabranch_topology_lines_down 1");
    r1.wait("anabranch_forwarder_line_up{to=\"r2\",address=\"127.92.40.7\"} 0");
    assert!(r1.scrape().contains("anabranch_cache_stored_bytes 0\n"));
    assert!(!r1.scrape().contains("anabranch_forwarder_line_up{to=\"a\""), "hosts are not asked");
    let r2 = start(&["forward", "--node", "r2"]);
    tm.wait("anabranch_topology_lines_down 0");
    r2.wait("anabranch_forwarder_line_up{to=\"r1\",address=\"127.92.40.8\"} 1");
    assert!(
        r2.scrape().contains("anabranch_forwarder_line_delay_seconds{to=\"r1\"")
            && !r2.scrape().contains("cache")
    );

    // The request of a host is counted.
    let mut show = anabranch();
    show.args(["net", "show", "--domain", "net.toml", "--node", "a", "--to", "films/x"]);
    let output = show.current_dir(dir.path()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && said.contains("nobody publishes films/x now"), "{output:?}");
    rv.wait("anabranch_rendezvous_lookups_total 1");
    rv.wait("anabranch_rendezvous_unknown_lookups_total 1");
    tm.wait("anabranch_topology_requests_total 1");
    // A host that is no member sends nonsense.
    let stranger = std::net::UdpSocket::bind("127.92.40.99:0").expect("a socket");
    stranger.send_to(b"x", "127.92.40.2:7700").expect("sent");
    r1.wait("anabranch_forwarder_dropped_frames_total{reason=\"stranger\"} 1");
    for reason in ["malformed", "hop-limit", "forged-fid", "no-link", "bad-way-back", "bad-port"] {
        assert!(r1.has(&format!("anabranch_forwarder_dropped_frames_total{{reason=\"{reason}\"}} 0")));
    }
    assert!(rv.has("anabranch_rendezvous_refused_total{reason=\"replayed\"} 0"));
    // An address that is in use is an error and not ignored.
    let mut second = anabranch();
    second.args(["forward", "--node", "r2", "--domain", "net.toml", "--prometheus", &r1.metrics]);
    let output = second.current_dir(dir.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
