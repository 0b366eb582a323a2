//! What the user wants of the uplinks.

use std::fs;
use std::path::Path;

use anabranch_net::via::{self, Via};
use serde::Deserialize;

use crate::{Error, Result};

/// The most bytes of a file of settings.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Which interfaces are used, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The links that are named, each with its cost and whether it is a backup. Without any, every line of
    /// the host is used.
    pub via: Vec<Via>,
    /// Whether lines that are not named are used, too, at cost 0.
    pub others: bool,
    /// Whether connections open a subflow from every uplink to every address of the peer.
    pub fullmesh: bool,
}

/// The file of settings.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    via: Vec<String>,
    others: bool,
    fullmesh: bool,
}

impl Policy {
    /// Reads a file of settings.
    ///
    /// # Errors
    /// If the file cannot be read, is no TOML, has an unknown key, or names links that do not fit together.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |what: String| Error::Settings(path.to_owned(), what);
        let len = fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
        if len > FILE_BYTES_MAX {
            return Err(wrong(format!("{len} bytes are too many for settings, at most {FILE_BYTES_MAX}")));
        }
        let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// Reads the text of a file of settings.
    ///
    /// # Errors
    /// As [`read`](Self::read), in words.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let document: Document = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        let via = document.via.iter().map(|text| link(text)).collect::<std::result::Result<_, _>>()?;
        let policy = Self { via, others: document.others, fullmesh: document.fullmesh };
        policy.check()?;
        Ok(policy)
    }

    /// Checks that the named links fit together.
    ///
    /// # Errors
    /// If there are more than eight, if one is named twice, or if all are backups and no others are used.
    pub fn check(&self) -> std::result::Result<(), String> {
        // Where others are used, lines that are not named carry while all named ones are backups.
        let check = if self.others { via::check_names } else { via::check };
        check(&self.via).map_err(|e| e.to_string())
    }

    /// Returns what the user wants of an interface; `None` if it is not to be used.
    #[must_use]
    pub fn of(&self, name: &str, is_line: bool) -> Option<Use> {
        if let Some(link) = self.via.iter().find(|link| link.name == name) {
            return Some(Use { cost: link.cost, is_backup: link.is_backup });
        }
        (is_line && (self.others || self.via.is_empty())).then_some(Use::default())
    }
}

/// How an interface is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The cost of a byte, in units of the user.
    pub cost: u32,
    /// Whether the link carries only while no other can.
    pub is_backup: bool,
}

/// Reads a link, as `wlan0`, `wwan0:backup` or `wwan0:cost=5`.
///
/// # Errors
/// If the text names no interface, or has a condition that cannot be kept here.
pub fn link(text: &str) -> std::result::Result<Via, String> {
    let via = text.parse::<Via>().and_then(|via| via.allow("uplinks", &["backup", "cost"]));
    let via = via.map_err(|e| e.to_string())?;
    if via.name.parse::<std::net::IpAddr>().is_ok() || via.name.contains('%') {
        return Err(format!("{}: name the interface, for its addresses may change", via.name));
    }
    Ok(via)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_refused() {
        let policy =
            Policy::parse("via = [\"wlan0\", \"wwan0:cost=5\", \"usb0:backup\"]\nothers = true").unwrap();
        assert_eq!(policy.of("wlan0", false), Some(Use::default()));
        assert_eq!(policy.of("wwan0", true), Some(Use { cost: 5, is_backup: false }));
        assert_eq!(policy.of("usb0", true), Some(Use { cost: 0, is_backup: true }));
        assert_eq!(policy.of("eth0", true), Some(Use::default()));
        assert_eq!(policy.of("tun0", false), None, "a tunnel is used only if it is named");
        assert_eq!(Policy::default().of("eth0", true), Some(Use::default()));
        let named = Policy::parse("via = [\"wlan0\"]").unwrap();
        assert_eq!(named.of("eth0", true), None);
        for (text, says) in [
            ("vai = []", "unknown field `vai`"),
            ("via = [\"wlan0:cap=1GB/day\"]", "`cap` of wlan0: uplinks cannot do that, but backup, cost"),
            ("via = [\"a\", \"a\"]", "the link a is named twice"),
            ("via = [\"a:backup\", \"a:backup\"]\nothers = true", "the link a is named twice"),
            ("via = [\"192.0.2.1\"]", "192.0.2.1: name the interface"),
            ("via = [\"a:backup\"]", "every link is a backup"),
            ("via = 5", "invalid type"),
        ] {
            let error = Policy::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(Policy::parse("via = [\"a:backup\"]\nothers = true").is_ok());
        let error = Policy::read(Path::new("/nowhere/uplinks.toml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/uplinks.toml: "), "{error}");
    }
}
