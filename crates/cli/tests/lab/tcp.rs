//! `anabranch tcp` as processes: both ends ours, and the kernel at the other end. Needs root, iproute2 and
//! python3, which is the kernel's program.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::common::fetch::skipped;
use crate::common::netns::Net;
use crate::common::{anabranch, noise};

const UP: usize = 3_000_000;
const DOWN: usize = 2_000_000;
/// A server on the kernel's Multipath TCP. It sends the file that the first argument names, and writes the
/// bytes that arrive to the file that the second argument names.
const KERNEL: &str = r#"
import socket, sys, threading
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.bind(("0.0.0.0", 5000)); s.listen(4)
print("listening", flush=True)
c, _ = s.accept()
def send():
    c.sendall(open(sys.argv[1], "rb").read()); c.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send); t.start()
with open(sys.argv[2], "wb") as out:
    while data := c.recv(1 << 16): out.write(data)
t.join()
"#;

/// One namespace whose kernel forwards between the devices of both ends.
struct Bed {
    net: Net,
    dir: TempDir,
}

impl Bed {
    fn new(test: &str) -> Option<Self> {
        let net = Net::new(test, &["a"])?;
        if !Path::new("/dev/net/tun").exists() {
            skipped("this kernel has no TUN devices");
            return None;
        }
        net.route_between("a");
        let dir = tempfile::tempdir().expect("a directory");
        let all = noise(UP + DOWN);
        fs::write(dir.path().join("up"), &all[..UP]).expect("written");
        fs::write(dir.path().join("down"), &all[UP..]).expect("written");
        Some(Self { net, dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `anabranch tcp` with the devices of two networks; sends one file and writes the other.
    fn tcp(&self, what: &[&str], networks: [u8; 2], input: &str, output: &str) -> Command {
        let mut command = anabranch();
        command.arg("tcp").arg(what[0]);
        for no in networks {
            command.arg(format!("--tun=t{no}=10.77.{no}.2@10.77.{no}.1/24"));
        }
        command.args(&what[1..]);
        let mut inside = self.net.inside("a", &command);
        inside.stdin(File::open(self.path(input)).expect("there"));
        inside.stdout(File::create(self.path(output)).expect("made")).stderr(Stdio::piped());
        inside
    }

    fn assert_same(&self, sent: &str, received: &str) {
        let read = |name| fs::read(self.path(name)).expect("there");
        assert!(read(sent) == read(received), "{received} is not {sent}");
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn both_ends_are_commands() {
    let Some(bed) = Bed::new("tcp-both") else { return };
    let mut listen = bed.tcp(&["listen", "5000"], [3, 4], "down", "got-up").spawn().expect("it runs");
    let mut errors = BufReader::new(listen.stderr.take().expect("piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    assert!(line.contains("listening at 10.77.3.2 port 5000"), "{line}");
    let connect = bed.tcp(&["connect", "10.77.3.2:5000"], [1, 2], "up", "got-down");
    let connected = { connect }.output().expect("it runs");
    assert!(connected.status.success(), "{}", told(&connected));
    let said = told(&connected);
    assert!(said.contains("connected by Multipath TCP"), "{said}");
    assert!(said.contains("subflow 10.77.2.2:"), "{said}");
    assert!(said.contains("3000000 bytes sent, 2000000 received; Multipath TCP, "), "{said}");
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("text");
    assert!(listen.wait().expect("it ends").success(), "{rest}");
    assert!(rest.contains("2000000 bytes sent, 3000000 received; Multipath TCP, "), "{rest}");
    bed.assert_same("up", "got-up");
    bed.assert_same("down", "got-down");
}

#[test]
fn the_kernel_is_the_server() {
    let Some(bed) = Bed::new("tcp-kernel") else { return };
    let mut server = Command::new("python3");
    server.args(["-c", KERNEL]).arg(bed.path("down")).arg(bed.path("got-up"));
    let mut server = bed.net.inside("a", &server);
    let mut server = match server.stdout(Stdio::piped()).spawn() {
        Ok(server) => server,
        Err(e) => return skipped(format!("the kernel's program needs python3 ({e})")),
    };
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line.trim(), "listening");
    let connect = bed.tcp(&["connect", "10.77.1.1:5000", "--checksums"], [1, 2], "up", "got-down");
    let connected = { connect }.output().expect("it runs");
    assert!(connected.status.success() && server.wait().expect("it ends").success(), "{}", told(&connected));
    assert!(told(&connected).contains("Multipath TCP, 2 subflows"), "{}", told(&connected));
    bed.assert_same("up", "got-up");
    bed.assert_same("down", "got-down");
}

#[test]
fn failures_have_statuses() {
    let Some(bed) = Bed::new("tcp-fail") else { return };
    for (what, status, why) in [
        (&["connect", "10.77.1.1:5000"][..], 4, "10.77.1.1:5000: the connection was refused"),
        (&["connect", "[fd77::1]:5000"], 2, "no link to [fd77::1]:5000"),
        (
            &["connect", "10.77.1.1:5000", "--path-manager", "all"],
            2,
            "fullmesh, backup, default, or a number",
        ),
    ] {
        let failed = bed.tcp(what, [1, 2], "up", "nothing").output().expect("it runs");
        assert_eq!(failed.status.code(), Some(status), "{}", told(&failed));
        assert!(told(&failed).contains(why), "{}", told(&failed));
    }
}
