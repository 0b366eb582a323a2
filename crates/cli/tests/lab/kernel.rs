//! Tests of `anabranch kernel setup`, `watch` and `teardown` as an administrator runs them: two unnamed
//! namespaces, which end with the test's thread, are joined by two virtual cables. They need root; without
//! it, they say so and pass.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Output, Stdio};

use crate::common::anabranch;
use crate::common::fetch::{refused, skipped};
use anabranch_net::netlink::{Netlink, PathManager, Route, SockDiag, TcpState};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

/// The number of IPPROTO_MPTCP.
const MPTCP: i32 = 262;
/// The far host's address, which is reached over both cables.
const FAR: &str = "10.255.0.1";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn namespace() -> Option<File> {
    if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
        refused(format!("kernel: no network namespace of our own ({e}); run as root"));
        return None;
    }
    let netlink = Netlink::open().expect("netlink");
    netlink.set_link(netlink.index("lo").expect("lo"), Some(true), None).expect("lo goes up");
    Some(File::open("/proc/thread-self/ns/net").expect("the namespace"))
}

fn enter(namespace: &File) {
    setns(namespace, CloneFlags::CLONE_NEWNET).expect("the namespace is there");
}

/// Makes both hosts, with this thread on the near one. Returns `None` where that is not possible.
pub(crate) fn world() -> Option<[File; 2]> {
    let (far, near) = (namespace()?, namespace()?);
    if let Err(e) = PathManager::open() {
        skipped(format!("kernel: {e}"));
        return None;
    }
    let netlink = Netlink::open().expect("netlink");
    for n in 1..=2_u32 {
        netlink.add_veth(&format!("up{n}"), &format!("far{n}"), Some(far.as_fd())).expect("a cable");
        for (namespace, name, host) in [(&far, "far", 2), (&near, "up", 1)] {
            enter(namespace);
            let netlink = Netlink::open().expect("netlink");
            let device = netlink.index(&format!("{name}{n}")).expect("an end of the cable");
            netlink.set_link(device, Some(true), None).expect("it goes up");
            netlink.add_address(device, ip(&format!("10.{n}.0.{host}")), 24).expect("an address");
        }
    }
    for n in 1..=2_u32 {
        let device = Some(netlink.index(&format!("up{n}")).expect("an end of the cable"));
        let gateway = Some(ip(&format!("10.{n}.0.2")));
        let route = Route { device, gateway, metric: n, ..Route::to(ip("0.0.0.0"), 0) };
        netlink.add_route(&route).expect("a default route");
    }
    enter(&far);
    let netlink = Netlink::open().expect("netlink");
    netlink.add_address(netlink.index("lo").expect("lo"), ip(FAR), 32).expect("an address");
    enter(&near);
    Some([near, far])
}

/// Runs `anabranch kernel` with these arguments in the thread's namespace.
fn kernel(words: &str) -> Output {
    anabranch().arg("kernel").args(words.split(' ')).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn an_administrators_day() {
    let day = || {
        let Some([near, far]) = world() else { return };
        let rules = || Netlink::open().and_then(|netlink| netlink.rules()).expect("the rules");
        let before = rules();

        let planned = kernel("setup --via up1 --via up2 --backup up2 --dry-run");
        assert!(planned.status.success(), "{planned:?}");
        let lines = text(&planned.stdout);
        assert!(lines.contains("mptcp endpoint add 10.2.0.1 dev up2 subflow backup\n"), "{lines}");
        assert_eq!(rules(), before, "a dry run changes nothing");
        let done = json(&kernel("setup --via up1 --via up2 --backup up2 --json"));
        assert_eq!(done["changes"].as_array().map(Vec::len), Some(lines.lines().count()));
        assert_eq!(
            json(&kernel("setup --via up1 --via up2 --backup up2 --json"))["changes"],
            Value::Array(vec![])
        );

        enter(&far);
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP))).expect("MPTCP");
        let listener = socket();
        listener.bind(&SocketAddr::new(ip(FAR), 0).into()).expect("the address is ours");
        listener.listen(1).expect("it listens");
        enter(&near);
        let dialed = socket();
        dialed.connect(&listener.local_addr().expect("it is bound")).expect("the far host answers");
        let (mut one, mut other) =
            (TcpStream::from(dialed), TcpStream::from(listener.accept().expect("both").0));
        one.write_all(&[7; 20_000]).expect("it is sent");
        other.read_exact(&mut [0; 20_000]).expect("it arrives");
        let sockets = SockDiag::open().expect("sock_diag");
        let clock = anabranch_net::Clock::start();
        while sockets.tcp(&[TcpState::Established]).expect("the sockets").len() < 2 {
            assert!(
                clock.now() < anabranch_algo::Time::from_nanos(8_000_000_000),
                "the second subflow comes"
            );
            clock.sleep_until(clock.now() + anabranch_algo::Span::from_millis(10));
        }

        let look = json(&kernel("watch --once --interval 50ms --json"));
        let subflows = look["connections"][0]["subflows"].as_array().expect("subflows");
        let seen: Vec<_> =
            subflows.iter().map(|s| (s["interface"].as_str(), s["backup"].as_bool())).collect();
        assert_eq!(seen, [(Some("up1"), Some(false)), (Some("up2"), Some(true))]);
        let picture = text(&kernel("watch --once --interval 50ms").stdout);
        assert!(picture.starts_with("1 MPTCP connection; "), "{picture}");
        assert!(
            picture.lines().any(|line| line.contains("10.2.0.1:") && line.ends_with("backup")),
            "{picture}"
        );
        prometheus();
        let settings = (rules(), kernel("status").stdout);
        let mut watching = anabranch();
        watching.args(["kernel", "watch", "--json", "--interval", "50ms"]).stdout(Stdio::piped());
        let mut watching = watching.spawn().expect("it starts");
        let mut lines = BufReader::new(watching.stdout.take().expect("a pipe")).lines();
        lines.next().expect("it looks").expect("a line");
        watching.kill().expect("it is ended by force");
        watching.wait().expect("it has ended");
        assert_eq!((rules(), kernel("status").stdout), settings, "a watcher that is killed leaves nothing");

        let back = kernel("teardown");
        assert!(back.status.success() && !back.stdout.is_empty(), "{back:?}");
        assert_eq!(rules(), before);
        assert_eq!(text(&kernel("teardown").stderr), "there is nothing to put back\n");
        for (words, code, says) in [
            ("setup --via up1 --via up9", 1, "up9 does not exist; there is up1, up2"),
            ("setup --via up1 --backup up2", 2, "up2 is to be a backup but"),
            ("watch --interval 1", 2, "\"1\" is not a time"),
        ] {
            let refused = kernel(words);
            assert_eq!(refused.status.code(), Some(code), "{words}");
            assert!(text(&refused.stderr).contains(says), "{words}: {refused:?}");
        }
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(day).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Checks the metrics of the two subflows, from a command that Ctrl-C ends.
fn prometheus() {
    let mut watch = anabranch();
    watch.args(["kernel", "watch", "--prometheus", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut watch = watch.spawn().expect("it runs");
    let mut said = BufReader::new(watch.stderr.take().expect("its messages"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("metrics at http://").and_then(|url| url.strip_suffix("/metrics"));
    let mut stream = TcpStream::connect(address.expect("an address")).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it is asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    for metric in ["cwnd_packets", "srtt_seconds", "acked_bytes_total", "retransmitted_packets_total"] {
        assert_eq!(
            answer.matches(&format!("\nanabranch_subflow_{metric}{{")).count(),
            2,
            "{metric}: {answer}"
        );
    }
    kill(Pid::from_raw(watch.id() as i32), Signal::SIGINT).expect("it runs");
    assert!(watch.wait().expect("it ends").success());
}
