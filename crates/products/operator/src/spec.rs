//! What an instance is made of: its function, its settings, its addresses.

use std::net::Ipv4Addr;
use std::str::FromStr;

use anabranch_function::abi::Side;
use anabranch_machines::config::is_name;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::frame::Mac;

/// An address in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Place {
    /// The address.
    pub address: Ipv4Addr,
    /// The length of the network's prefix, bits.
    pub prefix: u8,
}

impl Place {
    /// Whether an address is in this network.
    #[must_use]
    pub fn contains(self, other: Ipv4Addr) -> bool {
        let shift = 32 - u32::from(self.prefix);
        let network = |address: Ipv4Addr| u64::from(u32::from(address)) >> shift;
        network(self.address) == network(other)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong =
            || format!("`{}` is no address with a prefix, such as 10.1.0.1/24", text.escape_default());
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix)).ok_or_else(wrong)?;
        let is_host = !(address.is_unspecified() || address.is_multicast() || address.is_broadcast());
        if is_host { Ok(Self { address, prefix }) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// What an instance is made of; it moves with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The name of the instance.
    pub name: String,
    /// What the user called the function.
    pub function: String,
    /// The SHA-256 of its module, hexadecimal.
    pub module: String,
    /// Its settings, in their order.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    /// Its address at the users' side, their gateway.
    pub inside: Place,
    /// Its address at the other side; without one, it has one side only.
    #[serde(default)]
    pub outside: Option<Place>,
    /// Where packets go that leave outside, and are for no neighbour.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
    /// Its MAC at both sides.
    pub mac: Mac,
    /// A number that hosts outside do not know.
    pub seed: u64,
}

/// The most settings of an instance.
const SETTINGS_MAX: usize = 64;

impl Spec {
    /// Checks what cannot be seen from the types.
    ///
    /// # Errors
    /// `Usage`, with what is wrong.
    pub fn check(&self) -> Result {
        let wrong = |text: String| Err(Error::Usage(text));
        if !is_name(&self.name) {
            return wrong(format!("`{}` is no name of an instance", self.name.escape_default()));
        }
        let is_plain = |text: &String| text.len() <= 128 && !text.contains(['\n', '\r', '\0']);
        let is_setting = |(key, value): &(String, String)| {
            is_plain(key)
                && is_plain(value)
                && !key.contains(' ')
                && !["inside", "outside", "seed"].contains(&&**key)
        };
        if self.settings.len() > SETTINGS_MAX || !self.settings.iter().all(is_setting) {
            return wrong("a setting is KEY=VALUE, short, and 64 at most".to_owned());
        }
        if self.outside.is_some_and(|outside| outside.address == self.inside.address) {
            return wrong(format!("{} is the address of both sides", self.inside.address));
        }
        match (self.gateway, self.outside) {
            (Some(_), None) => wrong("a gateway needs an outside address".to_owned()),
            (Some(gateway), Some(outside)) if !outside.contains(gateway) || gateway == outside.address => {
                wrong(format!("the gateway {gateway} is no neighbour in {outside}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the address at a side.
    #[must_use]
    pub fn place(&self, side: Side) -> Option<Place> {
        match side {
            Side::Inside => Some(self.inside),
            Side::Outside => self.outside,
        }
    }

    /// Returns the settings as the module reads them.
    #[must_use]
    pub fn to_lines(&self) -> String {
        let mut text = format!("inside {}\nseed {}\n", self.inside.address, self.seed);
        if let Some(outside) = self.outside {
            text += &format!("outside {}\n", outside.address);
        }
        for (key, value) in &self.settings {
            text += &format!("{key} {value}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec {
            name: "a".into(),
            function: "firewall".into(),
            module: String::new(),
            settings: vec![("allow".into(), "tcp/22".into())],
            inside: "10.1.0.1/24".parse().unwrap(),
            outside: Some("10.2.0.1/24".parse().unwrap()),
            gateway: Some("10.2.0.254".parse().unwrap()),
            mac: Mac([2; 6]),
            seed: 7,
        }
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        spec().check().unwrap();
        let wrong = |change: fn(&mut Spec)| {
            let mut spec = spec();
            change(&mut spec);
            assert!(matches!(spec.check(), Err(Error::Usage(_))), "{spec:?}");
        };
        wrong(|spec| spec.name = "../a".into());
        wrong(|spec| spec.settings = vec![("seed".into(), "1".into())]);
        wrong(|spec| spec.settings = vec![("allow".into(), "a\nseed 1".into())]);
        wrong(|spec| spec.gateway = Some("10.3.0.1".parse().unwrap()));
        wrong(|spec| spec.outside = None);
        wrong(|spec| spec.outside = Some(spec.inside));
        for text in ["10.1.0.1", "10.1.0.1/0", "10.1.0.1/33", "0.0.0.0/8", "224.0.0.1/4", "x/1"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_spec_comes_back_from_its_record() {
        let text = serde_json::to_string(&spec()).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec());
        assert!(serde_json::from_str::<Spec>(&text.replace("10.1.0.1/24", "10.1.0.1/99")).is_err());
        assert_eq!(spec().to_lines(), "inside 10.1.0.1\nseed 7\noutside 10.2.0.1\nallow tcp/22\n");
    }
}
