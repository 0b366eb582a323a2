//! SOCKS5 (RFC 1928), with names and passwords (RFC 1929).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZero;

use super::{Association, Body, Form, Progress, Request, Users};
use crate::trunk::{Destination, Reason};

const VERSION: u8 = 5;
/// The version of the name and password exchange.
const PASSWORD_VERSION: u8 = 1;

const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;

const GENERAL_FAILURE: u8 = 1;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

/// Returns the reply code (RFC 1928 section 6) for a reason.
pub(super) fn code(reason: Reason) -> u8 {
    match reason {
        Reason::Denied => 2,
        Reason::NetworkUnreachable => 3,
        Reason::HostUnreachable | Reason::Name => 4,
        Reason::Refused => 5,
        Reason::NoInterest | Reason::Busy | Reason::TrunkGone => GENERAL_FAILURE,
    }
}

/// Makes a reply with this code and the unspecified address.
pub(super) fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Greeting,
    Password,
    Request,
}

/// The state of a SOCKS5 handshake.
#[derive(Debug, Default)]
pub(super) struct Socks {
    state: State,
    /// The bytes of a message that is not complete yet.
    bytes: Vec<u8>,
    /// The user who has given the right password.
    user: Option<String>,
}

/// The result of reading one message.
enum Step {
    /// The message is not complete.
    More,
    /// The message had this many bytes; the next message is of this kind.
    Next(usize, State),
    /// The last message: its length, and the destination of a connection.
    Wanted(usize, Destination),
    /// The last message asks for datagrams; the port from which they will come, if the program named it.
    Associate(Option<NonZero<u16>>),
    Refused,
}

impl Socks {
    pub(super) fn handle(&mut self, bytes: &[u8], users: &Users, out: &mut Vec<u8>) -> Progress {
        self.bytes.extend_from_slice(bytes);
        loop {
            let step = match self.state {
                State::Greeting => greeting(&self.bytes, users, out),
                State::Password => password(&self.bytes, users, &mut self.user, out),
                State::Request => request(&self.bytes, out),
            };
            match step {
                Step::More => return Progress::More,
                Step::Refused => return Progress::Refused,
                Step::Associate(port) => {
                    let wanted = Association { port, user: self.user.take(), ..Association::default() };
                    return Progress::Associate(Box::new(wanted));
                }
                Step::Next(length, state) => {
                    self.bytes.drain(..length);
                    self.state = state;
                }
                Step::Wanted(length, destination) => {
                    let first = self.bytes.split_off(length);
                    let body = Body::Endless;
                    let user = self.user.take();
                    let request = Request { destination, first, body, user, form: Form::Socks };
                    return Progress::Wanted(Box::new(request));
                }
            }
        }
    }
}

/// Reads the version and the methods that a program offers, and answers with a method.
fn greeting(bytes: &[u8], users: &Users, out: &mut Vec<u8>) -> Step {
    match bytes.first() {
        None => return Step::More,
        Some(&VERSION) => {}
        // A program that speaks HTTP gets a hint; version 4 and other protocols get no answer.
        Some(b'A'..=b'Z') => {
            out.extend_from_slice(
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n\
                  This port speaks SOCKS5, not HTTP.\n",
            );
            return Step::Refused;
        }
        Some(_) => return Step::Refused,
    }
    let Some(&count) = bytes.get(1) else { return Step::More };
    let length = 2 + usize::from(count);
    let Some(methods) = bytes.get(2..length) else { return Step::More };
    // If no name is needed, a program that offers only a name and a password may still give one.
    let (method, next) = if users.is_open() && methods.contains(&NO_AUTHENTICATION) {
        (NO_AUTHENTICATION, State::Request)
    } else if methods.contains(&PASSWORD) {
        (PASSWORD, State::Password)
    } else {
        out.extend_from_slice(&[VERSION, NO_METHOD]);
        return Step::Refused;
    };
    out.extend_from_slice(&[VERSION, method]);
    Step::Next(length, next)
}

/// Reads a name and a password (RFC 1929 section 2) and answers whether they are right.
fn password(bytes: &[u8], users: &Users, user: &mut Option<String>, out: &mut Vec<u8>) -> Step {
    if bytes.first().is_some_and(|version| *version != PASSWORD_VERSION) {
        out.extend_from_slice(&[PASSWORD_VERSION, 1]);
        return Step::Refused;
    }
    let Some((name, rest)) = bytes.get(1..).and_then(text) else { return Step::More };
    let Some((password, rest)) = text(rest) else { return Step::More };
    let is_right = users.admits(name, password);
    out.extend_from_slice(&[PASSWORD_VERSION, u8::from(!is_right)]);
    *user = users.named(name).filter(|_| is_right);
    if is_right { Step::Next(bytes.len() - rest.len(), State::Request) } else { Step::Refused }
}

/// Reads a text after its length byte. Returns the text and the rest.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
}

/// Reads a request (RFC 1928 sections 4 and 5).
fn request(bytes: &[u8], out: &mut Vec<u8>) -> Step {
    let mut refused = |code| {
        out.extend_from_slice(&reply(code));
        Step::Refused
    };
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return refused(GENERAL_FAILURE);
    }
    let (Some(&command), Some(&kind)) = (bytes.get(1), bytes.get(3)) else { return Step::More };
    if command != CONNECT && command != UDP_ASSOCIATE {
        return refused(COMMAND_NOT_SUPPORTED);
    }
    let rest = &bytes[4..];
    let address = match kind {
        1 => rest.split_first_chunk::<4>().map(|(ip, rest)| (Ok(Ipv4Addr::from(*ip).into()), rest)),
        4 => rest.split_first_chunk::<16>().map(|(ip, rest)| (Ok(Ipv6Addr::from(*ip).into()), rest)),
        3 => text(rest).map(|(name, rest)| (Err(name), rest)),
        _ => return refused(ADDRESS_NOT_SUPPORTED),
    };
    let Some((host, rest)) = address else { return Step::More };
    let Some((port, rest)) = rest.split_first_chunk::<2>() else { return Step::More };
    let port = u16::from_be_bytes(*port);
    if command == UDP_ASSOCIATE {
        // The address may be one before a translator, so the connection's address counts instead.
        return Step::Associate(NonZero::new(port));
    }
    let wanted = match host {
        Ok(ip) => Destination::from_ip(ip, port),
        Err(name) => Destination::from_name(name, port),
    };
    match wanted {
        Ok(destination) => Step::Wanted(bytes.len() - rest.len(), destination),
        Err(_) => refused(GENERAL_FAILURE),
    }
}
