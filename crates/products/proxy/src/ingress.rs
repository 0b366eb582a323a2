//! What programs speak: SOCKS and HTTP, up to the moment at which it is known where they want to go.
//!
//! A [`Handshake`] is a machine: it is told what arrived, and says what to write and, in the end, what is
//! [wanted](Request). However the bytes are cut, the outcome is the same; what a program sends before it was
//! asked to is taken.
//!
//! One port may take all of them ([`Handshake::any`]): the first byte is 4 or 5 in SOCKS, and the letter of a
//! method in HTTP.
//!
//! **One plain request a connection.** A request in absolute form is passed on in origin form with
//! `Connection: close`, its end is found by its framing ([`Body`]), and what comes behind it is dropped. So
//! no byte of a request for one origin can reach another, and answers pass as they are, without being parsed.
//! The next request costs the program a connection to its own host, and a stream: no round trip between the
//! hosts.

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

/// Who may use the proxy: pairs of name and password. None: whoever reaches it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users(Vec<(String, String)>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Users {
    /// These.
    pub fn new(users: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(users.into_iter().collect())
    }

    /// Whether nobody needs a name.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this name goes with this password. Takes as long whichever byte is wrong.
    #[must_use]
    pub fn admits(&self, name: &[u8], password: &[u8]) -> bool {
        let admits = |(n, p): &(String, String)| same(n.as_bytes(), name) & same(p.as_bytes(), password);
        self.is_open() || self.0.iter().fold(false, |found, user| found | admits(user))
    }

    /// The user of this name. Where nobody needs a name there is none.
    fn named(&self, name: &[u8]) -> Option<String> {
        self.0.iter().map(|(user, _)| user).find(|user| user.as_bytes() == name).cloned()
    }
}

/// What has become of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// It is known what the program wants.
    Wanted(Box<Request>),
    /// The program wants to send datagrams, as long as its connection lives.
    Associate(Box<Association>),
    /// It cannot be had: the output says so, and the connection is to be closed after it.
    Refused,
}

/// In which words a program is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Socks,
    /// SOCKS4 and 4A.
    Socks4,
    /// HTTP's CONNECT.
    Tunnel,
    /// A request in absolute form, which the origin answers.
    Plain,
    /// Not at all: it does not know that it does not speak to its destination.
    Redirected,
}

/// What a program wants.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub destination: Destination,
    /// The first bytes for the origin: all that have come.
    pub first: Vec<u8>,
    /// Which of the bytes that follow are for the origin too.
    pub body: Body,
    /// Who asks, where that was to be said.
    pub user: Option<String>,
    form: Form,
}

impl Request {
    /// That of a program whose connection was redirected: it has said nothing, and is told nothing.
    #[must_use]
    pub fn redirected(destination: Destination) -> Self {
        Self { destination, first: Vec::new(), body: Body::Endless, user: None, form: Form::Redirected }
    }

    /// What to write when the destination is connected, or will be. Nothing if the origin itself answers.
    #[must_use]
    pub fn accepted(&self) -> &'static [u8] {
        match self.form {
            // The address of our end is of no use to anybody; programs expect one of the right length.
            Form::Socks => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            Form::Socks4 => &socks4::GRANTED,
            Form::Tunnel => b"HTTP/1.1 200 Connection established\r\n\r\n",
            Form::Plain | Form::Redirected => &[],
        }
    }

    /// What to write when it cannot be connected, as long as nothing else was written.
    #[must_use]
    pub fn failed(&self, reason: Reason) -> Vec<u8> {
        match self.form {
            Form::Socks => socks::reply(socks::code(reason)).to_vec(),
            Form::Socks4 => socks4::REJECTED.to_vec(),
            Form::Tunnel | Form::Plain => http::failed(reason),
            Form::Redirected => Vec::new(),
        }
    }

    /// Whether the program is told only by what comes from the origin, so that a failure can still be said
    /// when it is known.
    #[must_use]
    pub fn is_answered_by_origin(&self) -> bool {
        self.form == Form::Plain
    }
}

/// Datagrams that a program wants to send, as long as its connection lives.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Association {
    /// Where to: the datagrams are in capsules on its connection (RFC 9298). `None`: each has its own
    /// destination, and comes to a port of ours (RFC 1928 section 7).
    pub to: Option<Destination>,
    /// From which port of its host they come to ours, if the program said so (RFC 1928 section 6).
    pub port: Option<NonZero<u16>>,
    /// What of the capsules has come.
    pub first: Vec<u8>,
    /// Who asks, where that was to be said.
    pub user: Option<String>,
}

impl Association {
    /// What to write when it can be had; of SOCKS, where `bound` is the port of ours.
    #[must_use]
    pub fn accepted(&self, bound: SocketAddr) -> Vec<u8> {
        if self.to.is_some() { connect_udp::ACCEPTED.to_vec() } else { socks_udp::bound(bound) }
    }

    /// What to write when it cannot be had.
    #[must_use]
    pub fn failed(&self, reason: Reason) -> Vec<u8> {
        if self.to.is_some() { http::failed(reason) } else { socks::reply(socks::code(reason)).to_vec() }
    }
}

/// The machine: until it is known what a program wants.
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
    /// One in whatever the first byte says: SOCKS4 and 4A, SOCKS5, or HTTP/1.1.
    #[must_use]
    pub const fn any(users: Users) -> Self {
        Self { machine: Machine::Any, users }
    }

    /// One in SOCKS5 (RFC 1928), with names and passwords as in RFC 1929.
    #[must_use]
    pub fn socks(users: Users) -> Self {
        Self { machine: Machine::Socks(socks::Socks::default()), users }
    }

    /// One in HTTP/1.1: CONNECT (RFC 9110 section 9.3.6) or the absolute form (RFC 9112 section 3.2.2), with
    /// the Basic scheme (RFC 7617).
    #[must_use]
    pub fn http(users: Users) -> Self {
        Self { machine: Machine::Http(http::Head::default()), users }
    }

    /// Takes what arrived, and appends what is to be written to `out`. Not to be called after it has said
    /// anything but [`Progress::More`].
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
