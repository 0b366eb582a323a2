//! The request of CONNECT-UDP in HTTP/1.1: RFC 9298 section 3.2.

use httparse::Header;

use super::Body;
use super::fields::{Refusal, framing, members, values};
use crate::trunk::Destination;

/// The protocol to which the request switches.
const TOKEN: &[u8] = b"connect-udp";
/// The part of the default template before its variables (RFC 9298 section 2).
const PLACE: &str = "/.well-known/masque/udp/";

const MALFORMED: Refusal = (
    "400 Bad Request",
    "connect-udp wants GET /.well-known/masque/udp/HOST/PORT/ HTTP/1.1, with Host, without a body.",
);

/// The answer that lets a program send.
pub(super) const ACCEPTED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n\r\n";

/// Whether a request asks for CONNECT-UDP. HTTP/1.0 cannot (RFC 9110 section 7.8).
pub(super) fn is_wanted(version: u8, fields: &[Header<'_>]) -> bool {
    version == 1 && members(fields, "upgrade").any(|token| token.eq_ignore_ascii_case(TOKEN))
}

/// Returns the destination of the datagrams of such a request.
pub(super) fn target(
    method: &str,
    target: &str,
    version: u8,
    fields: &[Header<'_>],
) -> Result<Destination, Refusal> {
    let switches = members(fields, "connection").any(|member| member.eq_ignore_ascii_case(b"upgrade"));
    let is_bare = matches!(framing(fields, version), Ok(Body::Length(0)));
    if method != "GET" || !switches || !is_bare || values(fields, "host").count() != 1 {
        return Err(MALFORMED);
    }
    // The template's own host is this proxy under any name, so it is not checked.
    let path = match target.split_once("://") {
        Some((_, rest)) => &rest[rest.find('/').ok_or(MALFORMED)?..],
        None => target,
    };
    variables(path).ok_or(MALFORMED)
}

/// Reads the variables of the default template from a path.
fn variables(path: &str) -> Option<Destination> {
    let (host, port) = path.strip_prefix(PLACE)?.strip_suffix('/')?.split_once('/')?;
    let is_port = port.bytes().all(|digit| digit.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_port)?;
    Destination::from_name(&decoded(host)?, port).ok()
}

/// Removes the percent-encoding of a variable. The colons of an IPv6 address are encoded (RFC 9298 section
/// 2).
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut all) = (text.bytes(), Vec::new());
    while let Some(byte) = bytes.next() {
        all.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            _ => byte,
        });
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_host_and_a_port() {
        for (path, to) in [
            ("192.0.2.6/443/", Some("192.0.2.6:443")),
            ("2001%3Adb8%3a%3A42/443/", Some("[2001:db8::42]:443")),
            ("a.example/53/", Some("a.example:53")),
            ("%61.example/53/", Some("a.example:53")),
            // These have an invalid port or host, a zone, or more after the port.
            ("a.example/0/", None),
            ("a.example/+53/", None),
            ("a.example/65536/", None),
            ("a.example/53", None),
            ("a.example/53/?x", None),
            ("a.example/53/x/", None),
            ("/53/", None),
            ("a%2/53/", None),
            ("a%2gb/53/", None),
            ("a%00b/53/", None),
            ("a%20b/53/", None),
            ("a%2Fb/53/", None),
        ] {
            let to = to.map(|to| to.parse().unwrap());
            assert_eq!(variables(&format!("{PLACE}{path}")), to, "{path}");
        }
    }
}
