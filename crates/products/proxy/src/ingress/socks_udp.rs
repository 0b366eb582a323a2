//! The datagrams of SOCKS5 (RFC 1928 section 7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::trunk::{Destination, Host};

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Makes the reply to UDP ASSOCIATE: the program may send datagrams to this address.
pub(crate) fn bound(address: SocketAddr) -> Vec<u8> {
    let mut reply = vec![5, 0, 0];
    put_address(address.ip().to_canonical(), &mut reply);
    reply.extend_from_slice(&address.port().to_be_bytes());
    reply
}

fn put_address(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(IPV4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(IPV6);
            out.extend_from_slice(&ip.octets());
        }
    }
}

/// Encodes a datagram from this peer for the program.
#[must_use]
pub fn encode(peer: &Destination, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0];
    match peer.host() {
        Host::Ip(ip) => put_address(*ip, &mut out),
        Host::Name(name) => {
            // A name has at most 255 bytes.
            out.extend_from_slice(&[NAME, name.len() as u8]);
            out.extend_from_slice(name.as_bytes());
        }
    }
    out.extend_from_slice(&peer.port().to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Reads a program's datagram. Returns its destination and payload, or `None` if it is malformed or a
/// fragment: fragments are dropped, as section 7 allows.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<(Destination, &[u8])> {
    let ([_, _, fragment, kind], rest) = bytes.split_first_chunk::<4>()?;
    if *fragment != 0 {
        return None;
    }
    let port = |rest: &'_ [u8]| rest.first_chunk::<2>().map(|port| u16::from_be_bytes(*port));
    let (to, rest) = match *kind {
        IPV4 => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (Destination::from_ip(Ipv4Addr::from(*ip).into(), port(rest)?), rest)
        }
        IPV6 => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (Destination::from_ip(Ipv6Addr::from(*ip).into(), port(rest)?), rest)
        }
        NAME => {
            let (len, rest) = rest.split_first()?;
            let (name, rest) = rest.split_at_checked(usize::from(*len))?;
            (Destination::from_name(name, port(rest)?), rest)
        }
        _ => return None,
    };
    Some((to.ok()?, &rest[2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        for peer in ["192.0.2.1:53", "[2001:db8::1]:53", "a.example:53"] {
            let peer: Destination = peer.parse().unwrap();
            let bytes = encode(&peer, b"query");
            assert_eq!(decode(&bytes), Some((peer, b"query".as_slice())));
            for len in 0..bytes.len() - 5 {
                assert_eq!(decode(&bytes[..len]), None);
            }
            let fragment = [&[0, 0, 1], &bytes[3..]].concat();
            assert_eq!(decode(&fragment), None);
        }
        assert_eq!(decode(&[0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 1]), None, "port 0");
        assert_eq!(bound("[::ffff:127.0.0.1]:258".parse().unwrap()), [5, 0, 0, 1, 127, 0, 0, 1, 1, 2]);
    }
}
