//! The destination of a program: an address or a name, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use bytes::{BufMut as _, BytesMut};

/// The most bytes of a name (RFC 1928 section 5 and RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;
/// The most bytes of an encoded destination: port, kind and name.
pub(super) const ENCODED_BYTES_MAX: usize = 3 + NAME_BYTES_MAX;

const KIND_IPV4: u8 = 1;
const KIND_IPV6: u8 = 2;
const KIND_NAME: u8 = 3;

/// A host as the program named it.
///
/// Each text that is an address becomes an address: the name `10.0.0.1` and the address `::ffff:10.0.0.1`
/// both become the address 10.0.0.1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// An address. An IPv6 address that maps an IPv4 one (RFC 4291 section 2.5.5.2) is stored as the latter.
    Ip(IpAddr),
    /// A name of 1 to 255 visible ASCII characters that is no address.
    Name(Box<str>),
}

/// A host and a port, as a program asks for it and OPEN carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Destination {
    host: Host,
    port: u16,
}

/// The reason why something is no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The port is 0.
    #[error("port 0 is no destination")]
    Port,
    /// The name is empty, longer than 255 bytes, or has other characters than visible ASCII.
    #[error("the host is no address, and no name of 1 to 255 visible ASCII characters")]
    Name,
    /// The text is not `HOST:PORT`.
    #[error("it is not HOST:PORT")]
    Form,
}

impl Destination {
    /// Creates the destination at an address.
    ///
    /// # Errors
    /// If the port is 0.
    pub fn from_ip(ip: IpAddr, port: u16) -> Result<Self, DestinationError> {
        if port == 0 {
            return Err(DestinationError::Port);
        }
        Ok(Self { host: Host::Ip(ip.to_canonical()), port })
    }

    /// Creates the destination of a name. A name that is an address in text becomes that address.
    ///
    /// # Errors
    /// If the name is invalid or the port is 0.
    pub fn from_name(name: &[u8], port: u16) -> Result<Self, DestinationError> {
        let text = std::str::from_utf8(name).map_err(|_| DestinationError::Name)?;
        if let Ok(ip) = text.parse() {
            return Self::from_ip(ip, port);
        }
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.iter().all(|c| c.is_ascii_graphic() && !b"[]/@\\".contains(c));
        match (is_name, port) {
            (false, _) => Err(DestinationError::Name),
            (true, 0) => Err(DestinationError::Port),
            (true, _) => Ok(Self { host: Host::Name(text.into()), port }),
        }
    }

    /// Reads `HOST:PORT`, or a host alone for this port.
    #[must_use]
    pub fn with_port(text: &str, port: u16) -> Option<Self> {
        let bare = text.parse::<IpAddr>().ok().and_then(|ip| Self::from_ip(ip, port).ok());
        bare.or_else(|| text.parse().ok()).or_else(|| format!("{text}:{port}").parse().ok())
    }

    /// Returns the host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the port, which is never 0.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the socket address, if the host is an address.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }

    /// Appends the destination in the form of OPEN.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        match &self.host {
            Host::Ip(ip) => encode_address(SocketAddr::new(*ip, self.port), out),
            Host::Name(name) => {
                out.put_u16(self.port);
                out.put_u8(KIND_NAME);
                out.put_slice(name.as_bytes());
            }
        }
    }

    /// Decodes all of `bytes`. Returns `None` if they are no destination.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (port, rest) = bytes.split_first_chunk::<2>()?;
        let (kind, rest) = rest.split_first()?;
        let port = u16::from_be_bytes(*port);
        match *kind {
            KIND_IPV4 => Self::from_ip(Ipv4Addr::from(<[u8; 4]>::try_from(rest).ok()?).into(), port).ok(),
            KIND_IPV6 => Self::from_ip(Ipv6Addr::from(<[u8; 16]>::try_from(rest).ok()?).into(), port).ok(),
            KIND_NAME => Self::from_name(rest, port).ok(),
            _ => None,
        }
    }
}

/// Appends an address in the form of a destination. The port may be 0.
pub(super) fn encode_address(address: SocketAddr, out: &mut BytesMut) {
    out.put_u16(address.port());
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            out.put_u8(KIND_IPV4);
            out.put_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.put_u8(KIND_IPV6);
            out.put_slice(&ip.octets());
        }
    }
}

impl From<SocketAddr> for Host {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address.ip().to_canonical())
    }
}

/// Writes the destination as in a URL's authority: `[2001:db8::1]:443`, `example.org:443`.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            Host::Ip(ip) => write!(f, "{ip}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Parses the form of [`Display`](fmt::Display), which is also the form in CONNECT requests (RFC 9110 section
/// 9.3.6).
impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let (host, port) = text.rsplit_once(':').ok_or(DestinationError::Form)?;
        if port.is_empty() || !port.bytes().all(|c| c.is_ascii_digit()) {
            return Err(DestinationError::Form);
        }
        let port = port.parse().map_err(|_| DestinationError::Form)?;
        if let Some(ip) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            let ip: Ipv6Addr = ip.parse().map_err(|_| DestinationError::Form)?;
            return Self::from_ip(ip.into(), port);
        }
        if host.contains(':') {
            return Err(DestinationError::Form);
        }
        Self::from_name(host.as_bytes(), port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:443", "example.org:443", "a_b-c.example.:1"] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
        for text in ["", "example.org", ":80", "example.org:", "e:0", "e:65536", "e:+1", "::1:80", "[::1:80"]
            .into_iter()
            .chain(["a b:80", "[example.org]:80", "user@host:80", "a/b:80", "[10.0.0.1]:80"])
        {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
        assert!(Destination::from_name(&[b'n'; 255], 1).is_ok());
        assert_eq!(Destination::from_name(&[b'n'; 256], 1), Err(DestinationError::Name));
        assert_eq!(Destination::from_name(b"caf\xc3\xa9", 1), Err(DestinationError::Name));
    }

    #[test]
    fn an_address_is_one_however_it_is_written() {
        let plain = Destination::from_ip("10.0.0.1".parse().unwrap(), 80).unwrap();
        assert_eq!(Destination::from_name(b"10.0.0.1", 80), Ok(plain.clone()));
        assert_eq!(Destination::from_name(b"::ffff:10.0.0.1", 80), Ok(plain.clone()));
        assert_eq!("[::ffff:10.0.0.1]:80".parse(), Ok(plain.clone()));
        let mut mapped = vec![0, 80, KIND_IPV6];
        mapped.extend("::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(Destination::decode(&mapped), Some(plain.clone()));
        assert_eq!(plain.address(), Some("10.0.0.1:80".parse().unwrap()));
    }

    #[test]
    fn what_is_cut_or_too_long_is_none() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:443"] {
            let mut bytes = BytesMut::new();
            text.parse::<Destination>().unwrap().encode(&mut bytes);
            for len in 0..bytes.len() {
                assert_eq!(Destination::decode(&bytes[..len]), None);
            }
            assert_eq!(Destination::decode(&bytes).map(|d| d.to_string()).as_deref(), Some(text));
            bytes.put_u8(0);
            assert_eq!(Destination::decode(&bytes), None);
        }
        assert_eq!(Destination::decode(&[0, 80, 4, 1]), None);
        assert_eq!(Destination::decode(&[0, 80, 3]), None);
    }
}
