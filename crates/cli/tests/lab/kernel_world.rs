//! Tests of the laboratory in the kernel as people use it: `lab up`, `exec`, `status`, `down`, `run --world
//! kernel`, and the state after a kill. They need root and `/dev/net/tun`; without them, each test says so in
//! a line and passes.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::held::{held, left, namespace};
use crate::common::{anabranch, wait_until};
use anabranch_net::netlink::Netlink;
use anabranch_net::{Clock, Namespace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

const LAB: &str = r#"
title = "One path"
duration = "20 s"
count_from = "5 s"
seeds = 2
controllers = ["reno"]

[link.down]
rate = "10 Mbit/s"
queue = "30 ms"
loss = 0.001

[flow.f]
paths = [{ via = ["down"], rtt = "30 ms" }]

[[measure]]
metric = "goodput"
kind = "goodput"
"#;

/// A host with two addresses, each behind a link of its own.
const TWO_LINKS: &str = r#"
title = "Two paths"
duration = "20 s"

[link.a]
rate = "20 Mbit/s"

[link.b]
rate = "20 Mbit/s"

[flow.f]
paths = [{ via = ["a"], rtt = "10 ms" }, { via = ["b"], rtt = "10 ms" }]
"#;

/// A directory with a scenario whose name no other test uses.
struct Bench {
    dir: TempDir,
    name: String,
}

impl Bench {
    fn new(name: &str) -> Self {
        Self::of(LAB, name)
    }

    fn of(text: &str, name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(format!("{name}.toml")), text).expect("written");
        Self { dir, name }
    }

    fn lab(&self, args: &[&str]) -> Command {
        let mut command = anabranch();
        command.current_dir(self.dir.path()).arg("lab").args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.lab(args).output().expect("it runs")
    }

    /// Brings the laboratory up. Returns the state that it reports.
    fn up(&self) -> Value {
        let output = self.run(&["up", &self.name, "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn is_up(&self) -> bool {
        String::from_utf8_lossy(&self.run(&["status", "--json"]).stdout).contains(&self.name)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // This is needed if a test failed.
        let _ = self.run(&["down", &self.name]);
    }
}

fn skipped() -> bool {
    let allowed = anabranch_lab::linux::testbed::allowed();
    if let Err(e) = &allowed {
        anabranch_net::testing::refused_device(format!("the world `kernel` cannot run here: {e}"));
    }
    allowed.is_err()
}

#[test]
fn what_is_up_says_how_to_use_it_over_one_path_and_over_several() {
    if skipped() {
        return;
    }
    for (text, name, with) in [(LAB, "says-one", ""), (TWO_LINKS, "says-two", "mptcpize run ")] {
        let bench = Bench::of(text, name);
        let output = bench.run(&["up", &bench.name]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(said.contains(&format!("lab exec f.rx -- {with}iperf3 -s -1 &\n")), "{said}");
        assert!(said.contains(&format!("lab exec f.tx -- {with}iperf3 -c 10.1.")), "{said}");
        assert!(bench.run(&["down", &bench.name]).status.success());
    }
}

/// The flows of the scenario are not started, whatever their transport is.
#[test]
fn a_scenario_of_mmtp_comes_up_as_it_stands() {
    if skipped() {
        return;
    }
    let mmtp = TWO_LINKS
        .replace("[flow.f]", "[flow.f]\ntransport = \"mmtp\"\ncoalesce = \"1 ms\"\ngroups = \"auto\"")
        + "[[fault]]\nat = \"1 s\"\nuntil = \"2 s\"\nlink = \"a\"\ndown = true\n";
    let bench = Bench::of(&mmtp, "mmtp");
    let output = bench.run(&["up", &bench.name, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let state: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(state["hosts"].as_array().map(Vec::len), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("flow f is mmTP's: run `anabranch serve` on f.tx"), "{said}");
}

#[test]
fn programs_find_the_rate_the_round_trip_and_the_loss_that_were_asked_for() {
    if skipped() {
        return;
    }
    let bench = Bench::new("rate");
    let state = bench.up();
    assert_eq!(state["hosts"][0]["name"], "f.tx");
    let at = state["hosts"][0]["peer"].as_str().expect("an address").to_owned();
    let (tx, rx) = (namespace(&state, "hosts", 0), namespace(&state, "hosts", 1));
    let clock = Clock::start();
    let since = |then: anabranch_algo::Time| clock.now().since(then).as_nanos() as f64 / 1e9;
    let bytes = 5_000_000;
    let listener = rx.run(|| TcpListener::bind((at.as_str(), 4_000))).expect("there").expect("a listener");
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("all");
        all.len()
    });
    let connect = || tx.run(|| TcpStream::connect((at.as_str(), 4_000))).expect("there").expect("connected");
    let mut stream = connect();
    // The shortest of several is taken, because single ones are late on a busy machine.
    let shortest = (0..10).map(|_| {
        let connecting = clock.now();
        connect();
        since(connecting)
    });
    let rtt = shortest.fold(f64::MAX, f64::min);
    assert!((0.030..0.045).contains(&rtt), "a handshake takes a round trip of 30 ms: {rtt} s");
    let sending = clock.now();
    stream.write_all(&vec![0; bytes]).expect("written");
    drop(stream);
    assert_eq!(receiver.join().expect("received"), bytes);
    let rate = bytes as f64 * 8.0 / 1e6 / since(sending);
    // The program's bytes are 1,448 of 1,500, so the rate is at most 9.65 Mbit/s; Reno leaves half a queue
    // unused.
    assert!((6.5..9.8).contains(&rate), "{rate} Mbit/s");

    let output = bench.run(&["down", &bench.name, "--json"]);
    // Status 7 means that the links were late, as on a busy machine. The report is all that this test needs.
    assert!(matches!(output.status.code(), Some(0 | 7)), "{output:?}");
    let state: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let link = &state["links"][0];
    assert!(link["offered"].as_u64() > Some(3_400), "{link}");
    // Of 3,450 packets, 3.5 are lost on average. The seed decides which; with this one some are lost, and
    // never 15.
    let lost = link["lost"].as_u64().expect("a number");
    assert!((1..15).contains(&lost), "{link}");
    assert!(!bench.is_up());
}

/// No route and no rule was added by hand.
#[test]
fn what_has_the_address_of_a_link_leaves_by_that_link() {
    if skipped() {
        return;
    }
    let bench = Bench::of(TWO_LINKS, "routes");
    let state = bench.up();
    let (tx, rx) = (namespace(&state, "hosts", 0), namespace(&state, "hosts", 1));
    let carried = || {
        let output = bench.run(&["status", "--json"]).stdout;
        let lines = String::from_utf8_lossy(&output).into_owned();
        let states = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let state = states.into_iter().find(|state| state["name"] == *bench.name).expect("it is up");
        [0, 1].map(|link: usize| state["links"][link]["delivered_bytes"].as_u64().expect("a number"))
    };
    // The last acknowledgement of a connection comes after its last byte.
    let settled = || {
        let mut before = carried();
        loop {
            thread::sleep(Duration::from_millis(50));
            let now = carried();
            if now == before {
                return now;
            }
            before = now;
        }
    };
    let bytes = 200_000;
    let read = |mut stream: TcpStream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("all");
        assert_eq!(all.len(), bytes);
    };
    let connect = |from: &str, to: SocketAddr| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from: SocketAddr = format!("{from}:0").parse().expect("an address");
        socket.bind(&from.into()).expect("bound");
        socket.connect(&to.into()).expect("connected");
        TcpStream::from(socket)
    };
    let listen = |space: &Namespace, at: &str| {
        space.run(|| TcpListener::bind((at, 0))).expect("entered").expect("a listener")
    };
    for (link, own) in ["10.1.0.1", "10.1.1.1"].into_iter().enumerate() {
        for answers in [false, true] {
            let before = settled();
            // The bytes are sent by a socket that is bound to the address, or by a server that is asked at
            // it.
            let (listener, from) =
                if answers { (listen(&tx, own), "10.1.255.1") } else { (listen(&rx, "10.1.255.1"), own) };
            let to = listener.local_addr().expect("an address");
            let client = if answers { &rx } else { &tx };
            let client = client.run(|| connect(from, to)).expect("entered");
            let (server, _) = listener.accept().expect("accepted");
            let (mut sender, receiver) = if answers { (server, client) } else { (client, server) };
            thread::scope(|scope| {
                scope.spawn(|| read(receiver));
                sender.write_all(&vec![7; bytes]).expect("written");
                drop(sender);
            });
            let after = settled();
            let [own_bytes, other_bytes] = [link, 1 - link].map(|link| after[link] - before[link]);
            assert!(
                own_bytes > bytes as u64 && other_bytes == 0,
                "{own} {answers}: {own_bytes} {other_bytes}"
            );
        }
    }
    // The rules belong to the host, not to this machine, and end with the host.
    let rules = |space: &Namespace| {
        let all = space.run(|| Netlink::open()?.rules()).expect("entered").expect("a list");
        all.iter().filter(|rule| rule.from.is_some_and(|(ip, _)| ip.to_string().starts_with("10.1."))).count()
    };
    assert_eq!((rules(&tx), rules(&Namespace::current().expect("this one"))), (2, 0));
    let namespaces = held(&state["pid"].to_string());
    drop((tx, rx));
    let output = bench.run(&["down", &bench.name]);
    assert!(matches!(output.status.code(), Some(0 | 7)), "{output:?}");
    assert_eq!(left(&namespaces), BTreeSet::new());
}

#[test]
fn exec_runs_a_program_on_a_host_and_ends_as_it_does() {
    if skipped() {
        return;
    }
    let bench = Bench::new("exec");
    bench.up();
    let host = format!("{}/f.tx", bench.name);
    let output =
        bench.run(&["exec", &host, "--", "sh", "-c", "echo $ANABRANCH_HOST $ANABRANCH_PEER; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "f.tx 10.1.255.1\n");
    let output = bench.run(&["exec", &format!("{}/f.ty", bench.name), "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean f.tx?"), "{output:?}");
    let output = bench.run(&["up", &bench.name]);
    assert_eq!(output.status.code(), Some(1), "it is up already: {output:?}");
    assert!(bench.run(&["down", &format!("{}.toml", bench.name)]).status.success());
    assert_eq!(bench.run(&["down", &bench.name]).status.code(), Some(2), "it is not up any more");
}

#[test]
fn exec_ends_as_a_shell_does_where_there_is_no_such_program() {
    if skipped() {
        return;
    }
    let bench = Bench::new("missing");
    bench.up();
    let host = format!("{}/f.tx", bench.name);
    for (program, code) in
        [("no-such-program", 127), ("/no/such/program", 127), ("/etc/passwd", 126), ("/", 126)]
    {
        let output = bench.run(&["exec", &host, "--", program]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with(&format!("anabranch: cannot run {program}: ")), "{said}");
    }
}

#[test]
fn programs_that_outlive_their_daemon_end_when_it_is_taken_down() {
    if skipped() {
        return;
    }
    let bench = Bench::new("outlives");
    let pid = bench.up()["pid"].to_string();
    let namespaces = held(&pid);
    let host = |name: &str| format!("{}/{name}", bench.name);
    // The first program ends when asked. The second does not, and has no variable of ours in its environment.
    let mut sleeper = bench.lab(&["exec", &host("f.tx"), "--", "sleep", "1000"]).spawn().expect("it runs");
    let deaf = ["env", "-i", "sh", "-c", "trap '' TERM; while :; do /bin/sleep 0.2; done"];
    let mut deaf = bench.lab(&[&["exec", &host("f.rx"), "--"][..], &deaf].concat()).spawn().expect("it runs");
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    wait_until(60, || name(sleeper.id()) == "sleep\n" && name(deaf.id()) == "sh\n");
    kill(Pid::from_raw(pid.parse().expect("a number")), Signal::SIGKILL).expect("killed");
    wait_until(60, || !bench.is_up());
    assert_eq!(left(&namespaces).len(), 2, "they live on with their programs");
    let said = bench.run(&["status"]).stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains(&format!("{} is not up any more", bench.name)), "{said}");
    // A new laboratory of the same name can be brought up; it has new hosts.
    bench.up();
    let mut third = bench.lab(&["exec", &host("f.tx"), "--", "sleep", "1001"]).spawn().expect("it runs");
    wait_until(60, || name(third.id()) == "sleep\n");
    // All are waited for at the same time, because ended children must be reaped in the meantime.
    let waiting = thread::spawn(move || [&mut sleeper, &mut deaf, &mut third].map(|child| child.wait()));
    let output = bench.run(&["down", &bench.name, "--json"]);
    assert!(matches!(output.status.code(), Some(0 | 7)), "{output:?}");
    let state: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ended = state["ended"].as_array().expect("a list");
    assert!(ended.len() >= 3, "{state}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("ended ") && said.contains("sleep (process "), "{said}");
    let codes = waiting.join().expect("they have ended").map(|status| status.expect("a status").code());
    assert_eq!(codes, [None; 3], "each by a signal");
    assert_eq!(left(&namespaces), BTreeSet::new());
    assert_eq!(bench.run(&["down", &bench.name]).status.code(), Some(2), "it is not up any more");
}

#[test]
fn what_runs_on_hosts_that_are_up_is_left_alone_where_their_laboratory_cannot_be_found() {
    if skipped() {
        return;
    }
    let bench = Bench::new("elsewhere");
    bench.up();
    let host = format!("{}/f.tx", bench.name);
    let mut sleeper = bench.lab(&["exec", &host, "--", "sleep", "1000"]).spawn().expect("it runs");
    wait_until(60, || {
        fs::read_to_string(format!("/proc/{}/comm", sleeper.id())).is_ok_and(|name| name == "sleep\n")
    });
    let elsewhere = Namespace::new().expect("a namespace");
    let output = elsewhere.run(|| bench.run(&["down", &bench.name])).expect("entered");
    assert_eq!(output.status.code(), Some(2), "it is not up there: {output:?}");
    let output = elsewhere.run(|| bench.run(&["status"])).expect("entered");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains(&format!("{} is not up any more", bench.name)), "{said}");
    assert!(sleeper.try_wait().expect("a status").is_none(), "it still runs");
    assert!(bench.is_up());
    let waiting = thread::spawn(move || sleeper.wait());
    let output = bench.run(&["down", &bench.name]);
    assert!(matches!(output.status.code(), Some(0 | 7)), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("ended sleep"), "{output:?}");
    assert_eq!(waiting.join().expect("it has ended").expect("a status").code(), None, "by a signal");
}

#[test]
fn on_a_host_no_laboratory_is_made_or_taken_down() {
    if skipped() {
        return;
    }
    let bench = Bench::new("inside");
    bench.up();
    let host = format!("{}/f.tx", bench.name);
    let program = crate::common::program();
    for words in [&["down"][..], &["down", &bench.name], &["down", "--all"], &["up", &bench.name]] {
        let output = bench.run(&[&["exec", &host, "--", program, "lab"][..], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(&format!("a host of the laboratory {}: run it outside", bench.name)), "{said}");
    }
    assert!(bench.is_up());
}

#[test]
fn whoever_is_not_root_is_told_whose_a_laboratory_is() {
    if skipped() {
        return;
    }
    let bench = Bench::new("whose");
    // The built command may be in a directory that this user cannot enter.
    let copy = bench.dir.path().join("anabranch");
    fs::copy(env!("CARGO_BIN_EXE_anabranch-lab"), &copy).expect("copied");
    for path in [bench.dir.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    }
    let nobody = |words: &[&str]| {
        let mut command = Command::new(&copy);
        let output =
            command.arg("lab").args(words).current_dir(bench.dir.path()).uid(65_534).gid(65_534).output();
        let output = output.expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = nobody(&["up", &bench.name]);
    assert!(code == Some(1) && said.contains("root"), "{said}");
    bench.up();
    let name = &bench.name;
    for (words, status) in [
        (&["status"][..], 0),
        (&["down"], 2),
        (&["down", name], 2),
        (&["exec", "f.tx", "--", "true"], 2),
        (&["exec", &format!("{name}/f.tx"), "--", "true"], 2),
    ] {
        let (code, said) = nobody(words);
        assert_eq!(code, Some(status), "{words:?}: {said}");
        assert!(said.contains(name.as_str()) && said.contains("as root"), "{words:?}: {said}");
    }
    assert!(bench.is_up());
}

#[test]
fn up_says_which_case_it_took_and_which_there_are() {
    if skipped() {
        return;
    }
    let bench = Bench::new("cases");
    let cases = "\n[[case]]\nname = \"control\"\n\n[[case]]\nname = \"two subflows\"\n";
    fs::write(bench.dir.path().join(format!("{}.toml", bench.name)), format!("{LAB}{cases}"))
        .expect("written");
    let output = bench.run(&["up", &bench.name, "--case", "nosuch"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no case `nosuch`; there are control, two subflows"), "{said}");
    let output = bench.run(&["up", &bench.name, "--case", "two subflows"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    bench.run(&["down", &bench.name]);
    let output = bench.run(&["up", &bench.name]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("case `control`, the first of `control`, `two subflows`: --case NAME"), "{said}");
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing() {
    if skipped() {
        return;
    }
    let bench = Bench::new("killed");
    let pid = bench.up()["pid"].to_string();
    let namespaces = held(&pid);
    assert_eq!(namespaces.len(), 2, "one for each host");
    assert_eq!(left(&namespaces), namespaces);
    kill(Pid::from_raw(pid.parse().expect("a number")), Signal::SIGKILL).expect("killed");
    wait_until(60, || left(&namespaces).is_empty());
    assert!(!bench.is_up());
    bench.up();
    assert!(bench.is_up(), "nothing of the old one is in the way");
}

#[test]
fn a_run_that_is_killed_or_interrupted_leaves_nothing() {
    if skipped() {
        return;
    }
    let bench = Bench::new("run");
    for (signal, status) in [(Signal::SIGKILL, None), (Signal::SIGINT, Some(130))] {
        let mut child = bench
            .lab(&["run", &bench.name, "--world", "kernel"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let pid = child.id().to_string();
        wait_until(60, || held(&pid).len() >= 4);
        thread::sleep(Duration::from_millis(500));
        let namespaces = held(&pid);
        let clock = Clock::start();
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("a signal");
        assert_eq!(child.wait().expect("it ended").code(), status);
        // The signal came during the runs, which take 20 s.
        assert!(
            clock.now().since(anabranch_algo::Time::ZERO) < anabranch_algo::Span::from_secs(10),
            "at once"
        );
        wait_until(60, || left(&namespaces).is_empty());
    }
}

#[test]
fn tables_show_both_worlds_and_results_resume() {
    if skipped() {
        return;
    }
    let bench = Bench::new("both");
    let short = ["--set", "duration=4 s", "--set", "count_from=1 s", "--seeds", "1"];
    let sweep = |extra: &[&str]| {
        let args = [&["sweep", &bench.name, "--out", "r.jsonl"][..], &short, extra].concat();
        let mut output = bench.run(&args);
        // Status 7 means that the links were late, as on a busy machine. Such a run does not count, and is
        // repeated.
        for _ in 0..5 {
            if output.status.code() == Some(7) && format!("{output:?}").contains("was busy") {
                output = bench.run(&args);
            }
        }
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = sweep(&["--world", "kernel,sim", "--report", "r.html"]);
    assert!(text.contains("simulated and in the kernel"), "{text}");
    assert!(text.contains("metric   controller   sim  kernel  unit"), "{text}");
    assert!(
        text.contains("Lateness of the emulated links: 99 % of the packets of each path within"),
        "{text}"
    );
    let page = fs::read_to_string(bench.dir.path().join("r.html")).expect("a page");
    assert!(page.contains(">sim</th>") && page.contains(">kernel</th>"));
    // All results are in the file, so nothing is run.
    let results = fs::read(bench.dir.path().join("r.jsonl")).expect("results");
    let rows = sweep(&["--world", "kernel", "--json"]);
    assert!(results == fs::read(bench.dir.path().join("r.jsonl")).expect("results"));
    let row: Value = serde_json::from_str(rows.lines().next().expect("a row")).expect("JSON");
    assert_eq!(row["world"], "kernel");
    assert!(row["late_p99_us"].as_f64() > Some(0.0));
}
