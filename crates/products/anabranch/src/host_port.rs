//! The address of a source as people write it: a host and a UDP port.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use anabranch_mmtp::uri::{UriError, host_port};

/// The UDP port on which a source listens by default: ANABR on a telephone's keys.
pub const PORT: u16 = 26_227;

/// A source as it is named; the name is resolved later. Examples are `mirror.example.net`, `192.0.2.1:5` and
/// `[2001:db8::1]:5`. The default port is [`PORT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A host name or an address.
    pub host: String,
    /// The UDP port.
    pub port: u16,
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok((host, port)) = host_port(text) {
            return Ok(Self { host: host.to_owned(), port });
        }
        if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Self { host: ip.to_string(), port: PORT });
        }
        host_port(&format!("{text}:{PORT}")).map_err(|_| UriError::HostPort(text.into()).to_string())?;
        Ok(Self { host: text.trim_matches(['[', ']']).to_owned(), port: PORT })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources() {
        let parse = |text: &str| text.parse::<HostPort>().map(|s| s.to_string());
        assert_eq!(parse("192.0.2.1:5"), Ok("192.0.2.1:5".into()));
        assert_eq!(parse("[2001:db8::1]:5"), Ok("[2001:db8::1]:5".into()));
        assert_eq!(parse("2001:db8::1"), Ok("[2001:db8::1]:26227".into()));
        assert_eq!(parse("mirror.example.net"), Ok("mirror.example.net:26227".into()));
        assert_eq!(parse("[fe80::1%eth0]:9"), Ok("[fe80::1%eth0]:9".into()));
        for bad in ["", ":5", "host:0", "host:x", "host:70000", "a b:5", "http://x/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
