//! SOCKS5: RFC 1928, and names with passwords: RFC 1929.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZero;

use super::{Association, Body, Form, Progress, Request, Users};
use crate::trunk::{Destination, Reason};

const VERSION: u8 = 5;
/// The version of the exchange of name and password.
const PASSWORD_VERSION: u8 = 1;

const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;

const GENERAL_FAILURE: u8 = 1;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

/// The code of a reply (RFC 1928 section 6) for a reason.
pub(super) fn code(reason: Reason) -> u8 {
    match reason {
        Reason::Denied => 2,
        Reason::NetworkUnreachable => 3,
        Reason::HostUnreachable | Reason::Name => 4,
        Reason::Refused => 5,
        Reason::NoInterest | Reason::Busy | Reason::TrunkGone => GENERAL_FAILURE,
    }
}

/// A reply with this code, and an address that says nothing.
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

/// Where a handshake is.
#[derive(Debug, Default)]
pub(super) struct Socks {
    state: State,
    /// What has come and is of no whole message yet.
    bytes: Vec<u8>,
    /// Who has given the right password.
    user: Option<String>,
}

/// What became of one message.
enum Step {
    /// It is not whole.
    More,
    /// It had this many bytes; the next one is of this kind.
    Next(usize, State),
    /// The last one: where to, and how long it was.
    Wanted(usize, Destination),
    /// From which port datagrams will come, if that was said.
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

/// The versions and methods that a program offers.
fn greeting(bytes: &[u8], users: &Users, out: &mut Vec<u8>) -> Step {
    match bytes.first() {
        None => return Step::More,
        Some(&VERSION) => {}
        // Whoever has confused the ports is told; version 4 and everything else is not answered.
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
    // Where nobody needs a name, whoever insists on giving one may.
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

/// RFC 1929 section 2.
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

/// A text with its length in front, and what is behind it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
}

/// RFC 1928 sections 4 and 5.
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
        // The address may be that before a translator, so it is that of the connection which counts.
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
