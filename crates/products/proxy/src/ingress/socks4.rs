//! SOCKS4 (Y.-D. Lee, "SOCKS: A protocol for TCP proxy across firewalls") and its extension 4A, with names.
//! It has no passwords, so it is refused where programs need one.

use std::net::Ipv4Addr;

use super::{Body, Form, Progress, Request, Users};
use crate::trunk::Destination;

const CONNECT: u8 = 1;
/// The longest user's name, and the longest name of a host (RFC 1035 section 2.3.4).
const TEXT_MAX: usize = 255;
/// Version, command, port and address.
const HEAD_BYTES: usize = 8;

/// What is answered: version 0, the code, and an address that says nothing.
pub(super) const GRANTED: [u8; 8] = [0, 90, 0, 0, 0, 0, 0, 0];
pub(super) const REJECTED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// Where a handshake is.
#[derive(Debug, Default)]
pub(super) struct Socks4 {
    bytes: Vec<u8>,
}

impl Socks4 {
    pub(super) fn handle(&mut self, bytes: &[u8], users: &Users, out: &mut Vec<u8>) -> Progress {
        self.bytes.extend_from_slice(bytes);
        match read(&self.bytes, users) {
            Ok(None) => Progress::More,
            Ok(Some((destination, length))) => {
                let first = self.bytes.split_off(length);
                let (body, user, form) = (Body::Endless, None, Form::Socks4);
                Progress::Wanted(Box::new(Request { destination, first, body, user, form }))
            }
            Err(Refused) => {
                out.extend_from_slice(&REJECTED);
                Progress::Refused
            }
        }
    }
}

struct Refused;

/// Where to, and the length of the request; `None` if it is not whole.
fn read(bytes: &[u8], users: &Users) -> Result<Option<(Destination, usize)>, Refused> {
    if !users.is_open() || bytes.get(1).is_some_and(|command| *command != CONNECT) {
        return Err(Refused);
    }
    let Some((&[_, _, high, low, a, b, c, d], rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let port = u16::from_be_bytes([high, low]);
    // The user's name proves nothing.
    let Some((_, rest)) = text(rest)? else { return Ok(None) };
    let (destination, rest) = if [a, b, c] == [0, 0, 0] && d != 0 {
        let Some((name, rest)) = text(rest)? else { return Ok(None) };
        (Destination::from_name(name, port), rest)
    } else {
        (Destination::from_ip(Ipv4Addr::new(a, b, c, d).into(), port), rest)
    };
    let destination = destination.map_err(|_| Refused)?;
    Ok(Some((destination, bytes.len() - rest.len())))
}

/// A text, and what is behind it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// A text up to its zero, and what is behind it; `None` if that has not come.
fn text(bytes: &[u8]) -> Result<Option<Split<'_>>, Refused> {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) if end <= TEXT_MAX => Ok(Some((&bytes[..end], &bytes[end + 1..]))),
        None if bytes.len() <= TEXT_MAX => Ok(None),
        _ => Err(Refused),
    }
}
