//! A server and a client of `anabranch proxy` as a user starts them, and what tests ask of such processes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longer than anything takes, also on a machine that is busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The command under test, whose state and sockets are in this directory.
pub(crate) fn own(place: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(crate::common::program());
    command.args(args).env("STATE_DIRECTORY", place).env("RUNTIME_DIRECTORY", place.join("run"));
    command.stderr(Stdio::inherit());
    command
}

/// The same command with so many descriptors at most.
pub(crate) fn limited(command: &Command, descriptors: u32) -> Command {
    let mut wrapped = Command::new("sh");
    wrapped.args(["-c", &format!("ulimit -n {descriptors} && exec \"$@\""), "sh"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        value.into_iter().for_each(|value| _ = wrapped.env(key, value));
    }
    wrapped
}

/// A role that runs, where it listens, and what it said.
pub(crate) struct Role {
    child: Child,
    listening: Vec<Value>,
    said: Arc<Mutex<Vec<Value>>>,
}

impl Role {
    /// Starts a command of ours, which has `--json`, and waits until it listens at `count` addresses.
    pub(crate) fn start(command: &mut Command, count: usize) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let listening = (&mut lines).filter(|line| line["event"] == "listening").take(count).collect();
        let said = Arc::<Mutex<Vec<Value>>>::default();
        let own = Arc::clone(&said);
        thread::spawn(move || lines.for_each(|line| own.lock().unwrap().push(line)));
        Self { child, listening, said }
    }

    pub(crate) fn listening(&self, door: &str) -> &Value {
        self.listening.iter().find(|line| line["door"] == door).unwrap()
    }

    pub(crate) fn address(&self, door: &str) -> &str {
        self.listening(door)["address"].as_str().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        self.child.wait().unwrap();
    }

    /// Its events of this kind since it began.
    pub(crate) fn said(&self, event: &str) -> Vec<Value> {
        self.said.lock().unwrap().iter().filter(|line| line["event"] == event).cloned().collect()
    }

    /// How many of its notices contain this.
    pub(crate) fn notices(&self, part: &str) -> usize {
        let has = |line: &&Value| line["text"].as_str().is_some_and(|text| text.contains(part));
        self.said("notice").iter().filter(has).count()
    }

    /// Descriptors that are open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// The time of processors that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        // Behind the name, which may contain everything: proc_pid_stat(5).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Resident memory, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
    }

    /// What it says of itself.
    pub(crate) fn status(&self, place: &Path) -> Value {
        let said = own(place, &["proxy", "status", "--json"]).output().unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.find(|line| line["pid"] == self.pid()).unwrap()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that believes this host, and connects to it.
pub(crate) fn server_command(place: &Path, more: &[&str]) -> Command {
    let args = ["proxy", "server", "--plain", "--from", "127.0.0.0/8", "--listen", "127.0.0.1:0", "--json"];
    own(place, &[&args[..], &["--allow", "127.0.0.1"], more].concat())
}

/// A client of the server at this address.
pub(crate) fn client_command(place: &Path, server: &str, more: &[&str]) -> Command {
    let args = ["proxy", "client", "--plain", "--server", server, "--socks", "127.0.0.1:0", "--json"];
    own(place, &[&args[..], more].concat())
}

/// Asks for a connection through SOCKS5 to a destination in SOCKS5's form, and returns what it says of it.
pub(crate) fn ask(socks: &str, to: &[u8], port: u16) -> std::io::Result<(TcpStream, u8)> {
    let mut stream = TcpStream::connect(socks)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.write_all(&[5, 1, 0])?;
    stream.read_exact(&mut [0; 2])?;
    stream.write_all(&[&[5, 1, 0], to, &port.to_be_bytes()[..]].concat())?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    Ok((stream, reply[1]))
}

/// A connection through SOCKS5 to a destination in SOCKS5's form.
pub(crate) fn connect(socks: &str, to: &[u8], port: u16) -> TcpStream {
    let (stream, code) = ask(socks, to, port).unwrap();
    assert_eq!(code, 0);
    stream
}

/// A connection through SOCKS5 to this address, of IPv4.
pub(crate) fn connect_to(socks: &str, to: SocketAddr) -> TcpStream {
    connect(socks, &v4(to), to.port())
}

/// An address of IPv4 in SOCKS5's form.
pub(crate) fn v4(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(v4) = address else { panic!("IPv4") };
    [&[1], &v4.ip().octets()[..]].concat()
}

/// An origin on loopback, with a thread for each connection.
pub(crate) fn origin(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, stream) = (serve.clone(), stream.unwrap());
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Says again what it hears.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// Whether a connection echoes, within the time that a read of it may take.
pub(crate) fn echoes(stream: &mut TcpStream) -> bool {
    let mut word = [0; 4];
    stream.write_all(b"word").is_ok() && stream.read_exact(&mut word).is_ok() && word == *b"word"
}

/// The connection is reset when it is dropped.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}
