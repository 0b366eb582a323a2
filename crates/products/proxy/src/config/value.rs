//! The types of settings, and how each is read and written.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anabranch_algo::Rate;

use crate::PORT;
use crate::client::ServerName;
use crate::leg::Mode;
use crate::links::{Via, ViaError};
use crate::policy::Scope;
use crate::transport::Choice;
use crate::trunk::Destination;

/// How a value is written in a file, and how often its flag may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false` in a file, and a flag without a value.
    Flag,
    /// A number without quotes.
    Number,
    /// A text in quotes.
    Text,
    /// One text, or a list of texts in brackets. The flag may be given several times.
    Many,
}

/// The value of a setting.
pub trait Value: Sized {
    /// How the value is written.
    const SHAPE: Shape;

    /// Parses the value from its texts.
    ///
    /// # Errors
    /// If the texts are no value of this type; the error says what is expected.
    fn read(texts: &[String]) -> Result<Self, String>;

    /// Returns the value as texts. Secrets are hidden.
    fn texts(&self) -> Vec<String>;
}

/// A value that is written as one text.
pub trait Item: Sized {
    /// Parses the value from its text.
    ///
    /// # Errors
    /// If the text is no value of this type; the error says what is expected.
    fn read_one(text: &str) -> Result<Self, String>;

    /// Returns the value as text. Secrets are hidden.
    fn text(&self) -> String;
}

impl<T: Item> Value for Vec<T> {
    const SHAPE: Shape = Shape::Many;

    fn read(texts: &[String]) -> Result<Self, String> {
        texts.iter().map(|text| T::read_one(text)).collect()
    }

    fn texts(&self) -> Vec<String> {
        self.iter().map(Item::text).collect()
    }
}

impl Value for bool {
    const SHAPE: Shape = Shape::Flag;

    fn read(texts: &[String]) -> Result<Self, String> {
        match texts {
            [] => Ok(true),
            [text] => text.parse().map_err(|_| "expected true or false".to_owned()),
            _ => Err("it is there twice".to_owned()),
        }
    }

    fn texts(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

/// Implements [`Value`] for types of one [`Item`].
macro_rules! one {
    ($($type:ty, $shape:ident;)*) => {
        $(impl Value for $type {
            const SHAPE: Shape = Shape::$shape;

            fn read(texts: &[String]) -> Result<Self, String> {
                match texts {
                    [text] => Self::read_one(text),
                    _ => Err("expected one value".to_owned()),
                }
            }

            fn texts(&self) -> Vec<String> {
                vec![self.text()]
            }
        })*
    };
}

one! {
    u32, Number;
    PathBuf, Text;
    String, Text;
    SocketAddr, Text;
    ListenAddress, Text;
    Secret, Text;
    Bandwidth, Text;
    TimeSpan, Text;
    Mode, Text;
    Choice, Text;
}

impl Item for Mode {
    fn read_one(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Item for Choice {
    fn read_one(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Item for u32 {
    fn read_one(text: &str) -> Result<Self, String> {
        text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "expected a number from 1 on".to_owned())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Item for PathBuf {
    fn read_one(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("expected a path".to_owned()) } else { Ok(text.into()) }
    }

    fn text(&self) -> String {
        self.display().to_string()
    }
}

impl Item for String {
    fn read_one(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn text(&self) -> String {
        self.clone()
    }
}

impl Item for SocketAddr {
    fn read_one(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| {
            format!(
                "'{text}' is no address with a port: expected ADDR:PORT, such as 127.0.0.1:1080 or \
                 [::1]:1080"
            )
        })
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Item for Scope {
    fn read_one(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Item for Via {
    fn read_one(text: &str) -> Result<Self, String> {
        let via = text.parse::<Self>().and_then(|via| via.allow("the proxy", &["backup", "cost", "cap"]));
        // The kernel has an endpoint for each interface.
        match via.map_err(|e: ViaError| e.to_string())? {
            via if via.name.parse::<IpAddr>().is_ok() || via.name.contains('%') => {
                Err(format!("{} is an address: the proxy's links are interfaces", via.name))
            }
            via => Ok(via),
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// The address at which a server listens: `ADDR:PORT`, or an address alone for [`PORT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl Item for ListenAddress {
    fn read_one(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        let bare = text.trim_matches(['[', ']']).parse::<IpAddr>();
        bare.map(|ip| Self(SocketAddr::new(ip, PORT))).map_err(|_| {
            format!(
                "'{text}' is no address: expected ADDR:PORT, such as 0.0.0.0:{PORT} or [::]:{PORT}; names \
                 are not looked up here"
            )
        })
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// The address of the server: `HOST:PORT`, or a host alone for [`PORT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress(pub Destination);

impl Item for ServerAddress {
    fn read_one(text: &str) -> Result<Self, String> {
        let destination = Destination::with_port(text, PORT);
        destination.map(Self).ok_or_else(|| {
            format!(
                "'{text}' is no server: expected HOST:PORT or HOST, such as proxy.example or \
                 [2001:db8::1]:{PORT}"
            )
        })
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

impl Item for ServerName {
    fn read_one(text: &str) -> Result<Self, String> {
        let Some(name) = text.strip_prefix("srv:") else {
            return ServerAddress::read_one(text).map(|server| server.0.into());
        };
        let name = name.trim_end_matches('.');
        // The labels of a name have 63 bytes at most (RFC 1035 section 2.3.4), and `_anabranch-proxy._tcp.`
        // comes before them.
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        match name.len() <= 230 && name.split('.').all(is_label) {
            true => Ok(Self::Records(name.to_owned())),
            false => Err(format!("'{text}' is no name in DNS: expected srv:NAME, such as srv:proxy.example")),
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Item for Secret {
    fn read_one(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        "(hidden)".to_owned()
    }
}

/// A user of a proxy, written `NAME:PASSWORD`.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password. It is never shown.
    pub password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Item for User {
    fn read_one(text: &str) -> Result<Self, String> {
        let (name, password) = text.split_once(':').ok_or("expected NAME:PASSWORD")?;
        // RFC 1929 has a length of one byte for each.
        if name.is_empty() || name.len() > 255 || password.is_empty() || password.len() > 255 {
            return Err("name and password have 1 to 255 bytes each".into());
        }
        Ok(Self { name: name.to_owned(), password: password.to_owned() })
    }

    fn text(&self) -> String {
        format!("{}:(hidden)", self.name)
    }
}

/// A rate in bytes a second: `500k`, `1.5Mi`, `20Mbit`; `/s` may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth(pub Rate);

/// The smallest rate in bytes per second. At less than a packet a second, nothing would ever be sent.
const RATE_MIN: f64 = 1_500.0;
const RATE_MAX: f64 = 1e15;

impl Item for Bandwidth {
    fn read_one(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("'{text}' is no rate: a number, with k, M, G, Ki, Mi or Gi behind it, and bit for bits")
        };
        let amount = text.trim().trim_end_matches("/s");
        let (amount, one) = match amount.strip_suffix("bit") {
            Some(amount) => (amount, 0.125),
            None => (amount.strip_suffix('B').unwrap_or(amount), 1.0),
        };
        const UNITS: [(&str, f64); 7] = [
            ("Ki", 1024.0),
            ("Mi", 1_048_576.0),
            ("Gi", 1_073_741_824.0),
            ("k", 1e3),
            ("M", 1e6),
            ("G", 1e9),
            ("", 1.0),
        ];
        let unit = UNITS.iter().find_map(|(name, by)| Some((amount.strip_suffix(name)?, by)));
        let (number, by) = unit.ok_or_else(wrong)?;
        let bytes = number.trim().parse::<f64>().map_err(|_| wrong())? * by * one;
        match bytes {
            RATE_MIN..=RATE_MAX => Ok(Self(Rate::from_bytes(bytes.round() as u64))),
            _ => Err("out of range: 1500 bytes a second is the least".to_owned()),
        }
    }

    fn text(&self) -> String {
        match self.0.as_bytes() {
            bytes if bytes.is_multiple_of(1_000_000) => format!("{}M", bytes / 1_000_000),
            bytes if bytes.is_multiple_of(1_000) => format!("{}k", bytes / 1_000),
            bytes => bytes.to_string(),
        }
    }
}

/// A span of time: `250 ms`, `30 s`, `5 min`, `1 h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

const TIMES: [(&str, u64); 4] = [("ms", 1), ("min", 60_000), ("s", 1_000), ("h", 3_600_000)];
/// The longest time in milliseconds: ten years. A longer limit would not limit anything.
const MILLIS_MAX: u64 = 10 * 365 * 24 * 3_600_000;

impl Item for TimeSpan {
    fn read_one(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no time: expected a number and ms, s, min or h, such as 30 s");
        let unit = TIMES.iter().find_map(|(name, millis)| Some((text.trim().strip_suffix(name)?, millis)));
        let (number, by) = unit.ok_or_else(wrong)?;
        let number = number.trim().parse::<u64>().map_err(|_| wrong())?;
        match number.checked_mul(*by) {
            Some(millis @ 1..=MILLIS_MAX) => Ok(Self(Duration::from_millis(millis))),
            _ => Err("out of range: 1 ms to 87600 h".to_owned()),
        }
    }

    fn text(&self) -> String {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(MILLIS_MAX);
        let largest = TIMES.iter().filter(|(_, by)| millis.is_multiple_of(*by)).max_by_key(|(_, by)| *by);
        largest.map_or_else(String::new, |(name, by)| format!("{} {name}", millis / by))
    }
}
