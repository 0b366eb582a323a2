//! The address of a server that keeps the state of rendezvous.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anabranch_algo::Span;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

use anabranch::{Error, Result};

/// The longest time that a connection with its login may take, and one exchange of commands and replies.
pub(super) const TIMEOUT: Span = Span::from_secs(2);
/// The schemes of addresses.
const SCHEMES: [&str; 6] = ["redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix"];

/// The place where a rendezvous keeps its state.
#[derive(Clone, Debug)]
pub enum StateAt {
    /// A file of its own.
    File(PathBuf),
    /// A server, which other rendezvous of the domain may also use.
    Server(StateServer),
}

/// The address of a Redis or Valkey server. It is shown without user and password.
#[derive(Clone)]
pub struct StateServer {
    pub(super) info: Box<ConnectionInfo>,
    shown: String,
}

impl StateAt {
    /// Parses `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]` (also `valkey://`; with TLS `rediss://`,
    /// `valkeys://`; `redis+unix:///PATH[?db=DB]`), or the path of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the text has `://` but is no such address. The
    /// error does not repeat the text, because it may have a password.
    pub fn parse(text: &OsStr) -> Result<Self> {
        match text.to_str().filter(|text| text.contains("://")) {
            None => Ok(Self::File(text.into())),
            Some(address) => address.parse().map(Self::Server),
        }
    }
}

impl FromStr for StateServer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::usage(
                "`state` is no address of a server: expected redis://HOST:PORT/DB, rediss://HOST:PORT/DB or \
                 redis+unix:///PATH, perhaps with USER:PASSWORD@ before HOST (percent-encoded); or the path \
                 of a file",
            )
        };
        let url =
            redis::parse_redis_url(text).filter(|url| SCHEMES.contains(&url.scheme())).ok_or_else(wrong)?;
        let scheme = url.scheme().to_owned();
        let info = url.into_connection_info().map_err(|_| wrong())?;
        let db = info.redis_settings().db();
        let shown = match info.addr() {
            ConnectionAddr::Unix(path) => format!("{scheme}://{}?db={db}", path.display()),
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
                if host.contains(':') =>
            {
                format!("{scheme}://[{host}]:{port}/{db}")
            }
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{scheme}://{host}:{port}/{db}")
            }
            _ => return Err(wrong()),
        };
        Ok(Self { info: Box::new(info), shown: anabranch::text::printable(&shown).into_owned() })
    }
}

impl fmt::Display for StateServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for StateServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateServer({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use anabranch::ErrorKind;

    use super::*;

    #[test]
    fn a_file_or_a_server() {
        let parsed = |text: &str| StateAt::parse(OsStr::new(text));
        assert!(matches!(parsed("state.redb"), Ok(StateAt::File(_))));
        assert!(matches!(parsed("/var/redis:/x"), Ok(StateAt::File(_))));
        for (text, shown) in [
            ("redis://db.example", "redis://db.example:6379/0"),
            ("valkey://db.example:7000/3", "valkey://db.example:7000/3"),
            ("redis://[::1]:7000", "redis://[::1]:7000/0"),
            ("rediss://me:hunter2@db.example", "rediss://db.example:6379/0"),
            ("redis+unix:///run/redis/s?db=2&pass=hunter2", "redis+unix:///run/redis/s?db=2"),
        ] {
            let Ok(StateAt::Server(server)) = parsed(text) else { panic!("{text}") };
            assert_eq!(server.to_string(), shown);
            assert_eq!(format!("{server:?}"), format!("StateServer({shown})"));
        }
        for wrong in [
            "http://me:hunter2@db.example",
            "redis://me:hunter2@",
            "redis://me:hunter2@h:port",
            "redis://me:hunter2@h/db",
            "redis://h/?protocol=hunter2",
            "rediss://me:hunter2@h/#insecure2",
            "redis+unix:me:hunter2://",
        ] {
            let Err(error) = parsed(wrong) else { panic!("{wrong}") };
            let (kind, why) = (error.kind(), error.message());
            assert_eq!(kind, ErrorKind::Usage);
            assert!(why.starts_with("`state` is no address") && !why.contains("hunter2"), "{why}");
        }
    }
}
