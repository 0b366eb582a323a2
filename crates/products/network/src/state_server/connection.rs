//! A bounded connection to a Redis or Valkey: each reply has a largest length, and commands and replies of an
//! exchange together have a time limit, however slowly they arrive.
//!
//! The library's own connection reads a reply of any length, and waits anew for each byte. So this module has
//! its own socket, and uses the library to write commands, parse replies and interpret addresses.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use redis::{Cmd, ConnectionAddr, Parser, RedisConnectionInfo, Value, cmd};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::address::StateServer;
use super::failure::Failure;

/// The most bytes of a reply: an answer has up to 256 records of less than a kilobyte. Bytes that are read
/// ahead of the next reply count too.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A socket that fails after a time, and after a number of bytes.
struct Bounded {
    socket: Socket,
    clock: Clock,
    until: Time,
    /// The number of bytes that may still be read.
    left_bytes: usize,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Bounded {
    /// Returns how long the socket may still wait.
    fn patience(&self) -> io::Result<Option<Duration>> {
        match self.until.since(self.clock.now()) {
            Span::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(Some(Duration::from_nanos(left.as_nanos()))),
        }
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let patience = self.patience()?;
        let most = buffer.len().min(self.left_bytes);
        if most == 0 {
            return Err(io::Error::other("a reply is too long"));
        }
        let n = match &mut self.socket {
            Socket::Tcp(tcp) => tcp.set_read_timeout(patience).and_then(|()| tcp.read(&mut buffer[..most])),
            Socket::Unix(unix) => {
                unix.set_read_timeout(patience).and_then(|()| unix.read(&mut buffer[..most]))
            }
        }?;
        self.left_bytes -= n;
        Ok(n)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let patience = self.patience()?;
        match &mut self.socket {
            Socket::Tcp(tcp) => tcp.set_write_timeout(patience).and_then(|()| tcp.write(bytes)),
            Socket::Unix(unix) => unix.set_write_timeout(patience).and_then(|()| unix.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Stream {
    Plain(Bounded),
    Tls(Box<StreamOwned<ClientConnection, Bounded>>),
}

impl Stream {
    fn bounded(&mut self) -> &mut Bounded {
        match self {
            Self::Plain(plain) => plain,
            Self::Tls(tls) => &mut tls.sock,
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.write_all(bytes),
            Self::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

/// The error of an exchange. The connection must not be used after it.
pub(super) struct Broken {
    pub(super) why: Failure,
    /// The index of the command whose reply is too long, if that is the reason.
    pub(super) too_long: Option<usize>,
}

impl From<Failure> for Broken {
    fn from(why: Failure) -> Self {
        Self { why, too_long: None }
    }
}

/// A connection to the server; see the [module](self).
pub(super) struct Connection {
    stream: Stream,
    parser: Parser,
    clock: Clock,
}

impl Connection {
    /// Connects and logs in, within a time.
    pub(super) fn open(server: &StateServer, within: Span) -> Result<Self, Failure> {
        let clock = Clock::start();
        let until = clock.now() + within;
        let bounded = |socket| Bounded { socket, clock, until, left_bytes: REPLY_BYTES_MAX };
        let stream = match server.info.addr() {
            ConnectionAddr::Unix(path) => {
                Stream::Plain(bounded(Socket::Unix(UnixStream::connect(path).map_err(unreachable)?)))
            }
            ConnectionAddr::Tcp(host, port) => {
                Stream::Plain(bounded(Socket::Tcp(connect(host, *port, clock, until)?)))
            }
            ConnectionAddr::TcpTls { host, port, insecure: false, .. } => {
                let tls = tls(host)?;
                let tcp = connect(host, *port, clock, until)?;
                Stream::Tls(Box::new(StreamOwned::new(tls, bounded(Socket::Tcp(tcp)))))
            }
            _ => return Err(Failure::lasting("cannot be used without checking its certificate")),
        };
        let mut new = Self { stream, parser: Parser::new(), clock };
        new.log_in(server.info.redis_settings(), within)?;
        Ok(new)
    }

    fn log_in(&mut self, settings: &RedisConnectionInfo, within: Span) -> Result<(), Failure> {
        let mut commands = Vec::new();
        if settings.protocol().supports_resp3() {
            let mut hello = cmd("HELLO");
            hello.arg(3);
            if let Some(password) = settings.password() {
                hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
            }
            commands.push(hello);
        } else if let Some(password) = settings.password() {
            let mut auth = cmd("AUTH");
            settings.username().into_iter().for_each(|name| _ = auth.arg(name));
            auth.arg(password);
            commands.push(auth);
        }
        let secret_commands = commands.len();
        if settings.db() != 0 {
            let mut select = cmd("SELECT");
            select.arg(settings.db());
            commands.push(select);
        }
        let replies = self.exchange(&commands, within).map_err(|broken| broken.why)?;
        for (place, reply) in replies.into_iter().enumerate() {
            if let Value::ServerError(error) = reply {
                let error = redis::RedisError::from(error);
                return Err(if place < secret_commands { Failure::not_let_in(&error) } else { error.into() });
            }
        }
        Ok(())
    }

    /// Sends commands together, then reads the reply to each, all within a time.
    pub(super) fn exchange(&mut self, commands: &[Cmd], within: Span) -> Result<Vec<Value>, Broken> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| command.write_packed_command(&mut bytes));
        self.stream.bounded().until = self.clock.now() + within;
        self.stream.write_all(&bytes).map_err(unreachable)?;
        let mut replies = Vec::with_capacity(commands.len());
        while replies.len() < commands.len() {
            self.stream.bounded().left_bytes = REPLY_BYTES_MAX;
            match self.parser.parse_value(&mut self.stream) {
                Ok(value) => replies.push(value),
                Err(_) if self.stream.bounded().left_bytes == 0 => {
                    let why = Failure::passing("sends a reply of more than a megabyte");
                    return Err(Broken { why, too_long: Some(replies.len()) });
                }
                Err(error) => return Err(Failure::from(error).into()),
            }
        }
        Ok(replies)
    }
}

fn unreachable(error: io::Error) -> Failure {
    redis::RedisError::from(error).into()
}

fn connect(host: &str, port: u16, clock: Clock, until: Time) -> Result<TcpStream, Failure> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs().map_err(unreachable)? {
        let left = until.since(clock.now());
        if left == Span::ZERO {
            failed = ErrorKind::TimedOut.into();
            break;
        }
        match TcpStream::connect_timeout(&address, Duration::from_nanos(left.as_nanos())) {
            Ok(tcp) => {
                tcp.set_nodelay(true).map_err(unreachable)?;
                return Ok(tcp);
            }
            Err(e) => failed = e,
        }
    }
    Err(unreachable(failed))
}

/// Creates TLS with the certificates that the system trusts.
fn tls(host: &str) -> Result<ClientConnection, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let wrong = |e: rustls::Error| Failure::lasting(format!("cannot be used: {e}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().map_err(wrong)?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Failure::lasting("has no name that a certificate could be of"))?;
    ClientConnection::new(Arc::new(config), name).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    use super::*;

    /// Starts a server that serves one connection by `what`. Returns its address and its thread.
    fn says(what: impl FnOnce(TcpStream) + Send + 'static) -> (StateServer, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("redis://{}", listener.local_addr().unwrap()).parse().unwrap();
        (server, thread::spawn(move || what(listener.accept().unwrap().0)))
    }

    /// Runs one exchange. Returns its duration in seconds and its result.
    fn ping(server: &StateServer, commands: usize, within: Span) -> (f64, Result<Vec<Value>, Broken>) {
        let mut connection = Connection::open(server, Span::from_secs(2)).map_err(|e| e.text).unwrap();
        let clock = Clock::start();
        let done = connection.exchange(&vec![cmd("PING"); commands], within);
        (clock.now().as_nanos() as f64 / 1e9, done)
    }

    #[test]
    fn a_reply_without_end_is_not_read_to_its_end() {
        let endless = [(&b"$4000000000\r\n"[..], &b"x"[..]), (b"+", b"x"), (b"*2000000\r\n", b"$1\r\nx\r\n")];
        for (begins, goes_on) in endless {
            let (server, said) = says(move |mut stream| {
                let _ = stream.write_all(b"+PONG\r\n").and_then(|()| stream.write_all(begins));
                let more = goes_on.repeat(10_000);
                while stream.write_all(&more).is_ok() {}
            });
            let (_, done) = ping(&server, 2, Span::from_secs(20));
            let broken = done.expect_err("too long");
            assert_eq!(broken.too_long, Some(1), "{}", broken.why.text);
            said.join().unwrap();
        }
    }

    #[test]
    fn a_reply_that_drips_has_the_time_of_all() {
        let (server, said) = says(|mut stream| {
            let _ = stream.write_all(b"$100\r\n");
            while stream.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        let (took_s, done) = ping(&server, 1, Span::from_millis(700));
        let broken = done.expect_err("too late");
        assert!(broken.too_long.is_none() && broken.why.text.contains("does not answer within"));
        assert!((0.6..2.0).contains(&took_s), "{took_s}");
        said.join().unwrap();
    }
}
