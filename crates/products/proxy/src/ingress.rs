//! The protocols of programs, SOCKS and HTTP, up to the moment when the destination is known.
//!
//! A [`Handshake`] is a machine: it is given the bytes that arrive, returns the bytes to write, and finally
//! the [request](Request). The result does not depend on how the bytes are split. Bytes that a program sends
//! before it has the answer are accepted.
//!
//! One port may take all of them ([`Handshake::any`]): the first byte is 4 or 5 in SOCKS, and the letter of a
//! method in HTTP.
//!
//! **One plain request a connection.** A request in absolute form is passed on in origin form with
//! `Connection: close`. Its framing ([`Body`]) gives its end, and later bytes are dropped. So no byte of a
//! request for one origin can reach another, and answers pass unparsed. The next request costs the program a
//! connection to its own host and a new stream, but no round trip between the hosts.

mod body;
pub mod capsule;
mod connect_udp;
mod fields;
mod http;
mod socks;
mod socks4;
pub mod socks_udp;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZero;

pub use body::{Body, Malformed};

use crate::constant_time::same;
use crate::trunk::{Destination, Reason};

/// The users of the proxy, as pairs of name and password. Without any, every program may use it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users(Vec<(String, String)>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Users {
    /// Creates the list of these users.
    pub fn new(users: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(users.into_iter().collect())
    }

    /// Whether programs need no name.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `name` and `password` belong together. The time does not depend on which byte is wrong.
    #[must_use]
    pub fn admits(&self, name: &[u8], password: &[u8]) -> bool {
        let admits = |(n, p): &(String, String)| same(n.as_bytes(), name) & same(p.as_bytes(), password);
        self.is_open() || self.0.iter().fold(false, |found, user| found | admits(user))
    }

    /// Returns the user of this name. There is none if programs need no name.
    fn named(&self, name: &[u8]) -> Option<String> {
        self.0.iter().map(|(user, _)| user).find(|user| user.as_bytes() == name).cloned()
    }
}

/// The state of a handshake after some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// The program wants a connection.
    Wanted(Box<Request>),
    /// The program wants to send datagrams as long as its connection lives.
    Associate(Box<Association>),
    /// The request is refused. The output has the answer; the connection is to be closed after it.
    Refused,
}

/// The form in which a program gets its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Socks,
    /// The answer of SOCKS4 and 4A.
    Socks4,
    /// The answer to CONNECT in HTTP.
    Tunnel,
    /// The origin answers the request, which was in absolute form.
    Plain,
    /// No answer, because the program does not know that it speaks to a proxy.
    Redirected,
}

/// A program's request for a connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The destination.
    pub destination: Destination,
    /// The first bytes for the origin: all that have arrived.
    pub first: Vec<u8>,
    /// Finds which of the following bytes are for the origin too.
    pub body: Body,
    /// The user, if programs need a name.
    pub user: Option<String>,
    form: Form,
}

impl Request {
    /// Creates the request of a redirected connection. The program has sent nothing to the proxy and gets no
    /// answer.
    #[must_use]
    pub fn redirected(destination: Destination) -> Self {
        Self { destination, first: Vec::new(), body: Body::Endless, user: None, form: Form::Redirected }
    }

    /// Returns the bytes to write when the destination is connected or will be. They are empty if the origin
    /// itself answers.
    #[must_use]
    pub fn accepted(&self) -> &'static [u8] {
        match self.form {
            // Programs do not use this address, but expect one of the right length.
            Form::Socks => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            Form::Socks4 => &socks4::GRANTED,
            Form::Tunnel => b"HTTP/1.1 200 Connection established\r\n\r\n",
            Form::Plain | Form::Redirected => &[],
        }
    }

    /// Returns the bytes to write when the connection fails and nothing else was written yet.
    #[must_use]
    pub fn failed(&self, reason: Reason) -> Vec<u8> {
        match self.form {
            Form::Socks => socks::reply(socks::code(reason)).to_vec(),
            Form::Socks4 => socks4::REJECTED.to_vec(),
            Form::Tunnel | Form::Plain => http::failed(reason),
            Form::Redirected => Vec::new(),
        }
    }

    /// Whether the program gets its first answer from the origin. If so, a failure that is known later can
    /// still be reported.
    #[must_use]
    pub fn is_answered_by_origin(&self) -> bool {
        self.form == Form::Plain
    }
}

/// A program's request to send datagrams as long as its connection lives.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Association {
    /// The destination of datagrams in capsules on the connection (RFC 9298). With `None`, each datagram
    /// comes to a UDP port of the client and names its own destination (RFC 1928 section 7).
    pub to: Option<Destination>,
    /// The port from which the program sends its datagrams, if the program named it (RFC 1928 section 6).
    pub port: Option<NonZero<u16>>,
    /// The bytes of capsules that have already arrived.
    pub first: Vec<u8>,
    /// The user, if programs need a name.
    pub user: Option<String>,
}

impl Association {
    /// Returns the bytes to write when the request is granted. For SOCKS, `bound` is the client's UDP port.
    #[must_use]
    pub fn accepted(&self, bound: SocketAddr) -> Vec<u8> {
        if self.to.is_some() { connect_udp::ACCEPTED.to_vec() } else { socks_udp::bound(bound) }
    }

    /// Returns the bytes to write when the request fails.
    #[must_use]
    pub fn failed(&self, reason: Reason) -> Vec<u8> {
        if self.to.is_some() { http::failed(reason) } else { socks::reply(socks::code(reason)).to_vec() }
    }
}

/// Reads the start of a program's connection until its request is known.
#[derive(Debug)]
pub struct Handshake {
    machine: Machine,
    users: Users,
}

#[derive(Debug)]
enum Machine {
    /// Nothing has come that tells what the program speaks.
    Any,
    Socks4(socks4::Socks4),
    Socks(socks::Socks),
    Http(http::Head),
}

impl Handshake {
    /// Creates a handshake in the protocol that the first byte tells: SOCKS4 and 4A, SOCKS5, or HTTP/1.1.
    #[must_use]
    pub const fn any(users: Users) -> Self {
        Self { machine: Machine::Any, users }
    }

    /// Creates a handshake in SOCKS5 (RFC 1928), with names and passwords as in RFC 1929.
    #[must_use]
    pub fn socks(users: Users) -> Self {
        Self { machine: Machine::Socks(socks::Socks::default()), users }
    }

    /// Creates a handshake in HTTP/1.1: CONNECT (RFC 9110 section 9.3.6) or the absolute form (RFC 9112
    /// section 3.2.2), with the Basic scheme (RFC 7617).
    #[must_use]
    pub fn http(users: Users) -> Self {
        Self { machine: Machine::Http(http::Head::default()), users }
    }

    /// Takes the bytes that arrived, and appends the bytes to write to `out`. Must not be called again after
    /// it has returned anything but [`Progress::More`].
    pub fn handle(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Progress {
        if let (Machine::Any, Some(first)) = (&self.machine, bytes.first()) {
            self.machine = match first {
                4 => Machine::Socks4(socks4::Socks4::default()),
                5 => Machine::Socks(socks::Socks::default()),
                _ => Machine::Http(http::Head::default()),
            };
        }
        match &mut self.machine {
            Machine::Any => Progress::More,
            Machine::Socks4(socks) => socks.handle(bytes, &self.users, out),
            Machine::Socks(socks) => socks.handle(bytes, &self.users, out),
            Machine::Http(head) => head.handle(bytes, &self.users, out),
        }
    }
}

#[cfg(test)]
mod tests;
