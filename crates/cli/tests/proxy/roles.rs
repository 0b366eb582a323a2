//! Starts a server and a client of `anabranch proxy` as a user does, and has functions for tests of such
//! processes.

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

/// Longer than any step takes, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Returns the command under test, with its state and its sockets in this directory.
pub(crate) fn own(place: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(crate::common::program());
    command.args(args).env("STATE_DIRECTORY", place).env("RUNTIME_DIRECTORY", place.join("run"));
    command.stderr(Stdio::inherit());
    command
}

/// Returns the same command with this limit on its descriptors.
pub(crate) fn limited(command: &Command, descriptors: u32) -> Command {
    let mut wrapped = Command::new("sh");
    wrapped.args(["-c", &format!("ulimit -n {descriptors} && exec \"$@\""), "sh"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        value.into_iter().for_each(|value| _ = wrapped.env(key, value));
    }
    wrapped
}

/// A running role, its addresses, and its output.
pub(crate) struct Role {
    child: Child,
    listening: Vec<Value>,
    said: Arc<Mutex<Vec<Value>>>,
}

impl Role {
    /// Starts a command of ours that has `--json`, and waits until it listens at `count` addresses.
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

    /// Returns the role's events of this kind since it began.
    pub(crate) fn said(&self, event: &str) -> Vec<Value> {
        self.said.lock().unwrap().iter().filter(|line| line["event"] == event).cloned().collect()
    }

    /// Returns how many of its notices contain this text.
    pub(crate) fn notices(&self, part: &str) -> usize {
        let has = |line: &&Value| line["text"].as_str().is_some_and(|text| text.contains(part));
        self.said("notice").iter().filter(has).count()
    }

    /// Returns the number of open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Returns the processor time that the role has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        // The fields follow the program's name, which may contain any character: proc_pid_stat(5).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
    }

    /// Returns the status that the role reports.
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

/// Returns the command of a server that believes clients on this host and connects to it.
pub(crate) fn server_command(place: &Path, more: &[&str]) -> Command {
    let args = ["proxy", "server", "--plain", "--from", "127.0.0.0/8", "--listen", "127.0.0.1:0", "--json"];
    own(place, &[&args[..], &["--allow", "127.0.0.1"], more].concat())
}

/// Returns the command of a client of the server at this address.
pub(crate) fn client_command(place: &Path, server: &str, more: &[&str]) -> Command {
    let args = ["proxy", "client", "--plain", "--server", server, "--socks", "127.0.0.1:0", "--json"];
    own(place, &[&args[..], more].concat())
}

/// Requests a connection by SOCKS5 to a destination in SOCKS5's form. Returns it with the reply code.
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

/// Opens a connection by SOCKS5 to a destination in SOCKS5's form.
pub(crate) fn connect(socks: &str, to: &[u8], port: u16) -> TcpStream {
    let (stream, code) = ask(socks, to, port).unwrap();
    assert_eq!(code, 0);
    stream
}

/// Opens a connection by SOCKS5 to this IPv4 address.
pub(crate) fn connect_to(socks: &str, to: SocketAddr) -> TcpStream {
    connect(socks, &v4(to), to.port())
}

/// Encodes an IPv4 address in SOCKS5's form.
pub(crate) fn v4(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(v4) = address else { panic!("IPv4") };
    [&[1], &v4.ip().octets()[..]].concat()
}

/// Starts an origin on loopback with a thread for each connection. Returns its address.
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

/// Sends back all bytes of a connection.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// Whether a connection echoes within its read time-out.
pub(crate) fn echoes(stream: &mut TcpStream) -> bool {
    let mut word = [0; 4];
    stream.write_all(b"word").is_ok() && stream.read_exact(&mut word).is_ok() && word == *b"word"
}

/// Resets a connection.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}
