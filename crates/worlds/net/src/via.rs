//! Parses a link as a user names it: the value of `--via`, in every command that has this option.
//!
//! ```text
//! IFACE|ADDR[:HOW[,HOW]…]      wlan0   192.0.2.7   fe80::1%eth0   wwan0:backup   eth0:limit=5M
//! ```
//!
//! A command refuses conditions of a link that it cannot keep: [`Via::allow`].

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use anabranch_algo::Rate;

use crate::quantity;

/// The placeholder of the value in help texts.
pub const VALUE: &str = "IFACE|ADDR[:HOW,…]";
/// The help text of `--via`, in every command.
pub const HELP: &str = "\
    Use this link, a network interface or a local address, and only links that are named; repeat the \
    option for each. HOW sets conditions, with commas between them: `backup`, only while no other can \
    carry data (get, proxy, kernel); `cost=5`, only while the cheaper ones are full or dead (get, proxy); \
    `cap=20GB/month`, not when the interface has carried so much, both ways, in this day, week or month \
    in UTC (get, proxy); `limit=5M`, no more than this over it (get)";

/// The largest number of links, because the kernel uses no more (`MPTCP_PM_ADDR_MAX` of
/// `net/mptcp/pm_kernel.c`).
const LINKS_MAX: usize = 8;
/// The largest length of an interface's name, in bytes: `IFNAMSIZ` without the zero at the end.
const NAME_BYTES_MAX: usize = 15;
/// The largest cost. A cost is a weight that the user chooses, not money.
const COST_MAX: u32 = 1_000_000;
/// The decimal units, the largest first.
const UNITS: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("B", 1)];

/// Describes a link that may be used: the name of its interface or a local address, and the conditions of its
/// use.
///
/// It is written `wlan0`, `wwan0:backup`, `wwan0:cost=5,cap=20GB/month`, `192.0.2.7:limit=5M`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Via {
    /// The interface, the address, or both: `fe80::1%eth0`. The host need not have it.
    pub name: String,
    /// Whether the link carries data only while no other can.
    pub is_backup: bool,
    /// The cost of a byte in units that the user chooses. A link carries data when the cheaper ones are full
    /// or dead.
    pub cost: u32,
    /// The largest number of bytes that the link may carry.
    pub cap: Option<Cap>,
    /// The rate at which the link may be used.
    pub limit: Option<Rate>,
}

/// Limits the number of bytes that a link may carry in a period, both directions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cap {
    /// The number of bytes.
    pub bytes: u64,
    /// The period.
    pub period: Period,
}

/// Names a period of the calendar, in Coordinated Universal Time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// A day, from midnight on.
    Day,
    /// A week, from Monday on.
    Week,
    /// A month, from its first day on.
    Month,
}

impl Period {
    const NAMES: [(&'static str, Self); 3] =
        [("day", Self::Day), ("week", Self::Week), ("month", Self::Month)];
}

/// Says why a text names no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViaError(String);

impl fmt::Display for ViaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ViaError {}

impl Via {
    /// Creates a link without conditions.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_backup: false, cost: 0, cap: None, limit: None }
    }

    /// Returns the link if it has no other conditions than these (`backup`, `cost`, `cap`, `limit`), which
    /// the command `who` can keep.
    ///
    /// # Errors
    /// If the link has other conditions.
    pub fn allow(self, who: &str, conditions: &[&str]) -> Result<Self, ViaError> {
        let has = [
            ("backup", self.is_backup),
            ("cost", self.cost > 0),
            ("cap", self.cap.is_some()),
            ("limit", self.limit.is_some()),
        ];
        match has.iter().find(|(name, is_there)| *is_there && !conditions.contains(name)) {
            Some((name, _)) => Err(ViaError(format!(
                "`{name}` of {}: {who} cannot do that, but {}",
                self.name,
                conditions.join(", ")
            ))),
            None => Ok(self),
        }
    }
}

/// Returns whether a text can be the name of an interface: the names that the kernel accepts
/// (`dev_valid_name`), without the characters that stand between a name and its conditions.
fn is_interface(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !matches!(name, "." | "..")
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:=".contains(&byte))
}

/// Returns whether a text is an address, perhaps with an interface behind it.
fn is_address(text: &str) -> bool {
    let (address, device) = text.split_once('%').unwrap_or((text, "any"));
    address.parse::<IpAddr>().is_ok() && is_interface(device)
}

/// Divides a text into the name of a link and its conditions. An address itself has colons, and the name of
/// an interface may have a comma. So the first colon or comma with a condition behind it divides the text.
fn divided(text: &str) -> (&str, Option<&str>) {
    let is_condition = |text: &str| {
        let word = text.split([',', '=']).next().unwrap_or_default();
        match text[word.len()..].chars().next() {
            Some('=') => matches!(word, "cost" | "cap" | "limit"),
            _ => word == "backup",
        }
    };
    let mut separators = text.match_indices([':', ',']).map(|(at, _)| at);
    match separators.find(|at| is_condition(&text[at + 1..])) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None if is_address(text) => (text, None),
        None => text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest))),
    }
}

/// Checks that these links fit together, that the kernel can use so many, and that one of them is no backup.
///
/// # Errors
/// If there are too many links, if one is named twice, or if all are backups.
pub fn check(links: &[Via]) -> Result<(), ViaError> {
    check_number(links)?;
    check_words(links)
}

/// Checks that these links fit together, and that one of them is no backup.
///
/// # Errors
/// If one is named twice, or if all are backups.
pub fn check_words(links: &[Via]) -> Result<(), ViaError> {
    check_once(links)?;
    if !links.is_empty() && links.iter().all(|link| link.is_backup) {
        return Err(ViaError("every link is a backup: leave one that is not".to_owned()));
    }
    Ok(())
}

/// Checks that these links fit together, where others may carry data too.
///
/// # Errors
/// If there are too many links, or if one is named twice.
pub fn check_names(links: &[Via]) -> Result<(), ViaError> {
    check_number(links)?;
    check_once(links)
}

fn check_number(links: &[Via]) -> Result<(), ViaError> {
    if links.len() > LINKS_MAX {
        return Err(ViaError(format!("the kernel uses {LINKS_MAX} links at most, not {}", links.len())));
    }
    Ok(())
}

fn check_once(links: &[Via]) -> Result<(), ViaError> {
    let twice = links.iter().enumerate().find(|(n, link)| links[..*n].iter().any(|l| l.name == link.name));
    if let Some((_, link)) = twice {
        return Err(ViaError(format!("the link {} is named twice", link.name)));
    }
    Ok(())
}

impl FromStr for Via {
    type Err = ViaError;

    fn from_str(text: &str) -> Result<Self, ViaError> {
        let (name, conditions) = divided(text);
        if !is_interface(name) && !is_address(name) {
            return Err(ViaError(format!(
                "`{name}` is no name of an interface, such as wlan0, and no address"
            )));
        }
        let mut via = Self::new(name);
        let mut seen = Vec::new();
        for condition in conditions.into_iter().flat_map(|conditions| conditions.split(',')) {
            let (key, value) = match condition.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (condition, None),
            };
            if seen.contains(&key) {
                return Err(ViaError(format!("`{key}` is there twice")));
            }
            seen.push(key);
            match (key, value) {
                ("backup", None) => via.is_backup = true,
                ("cost", Some(value)) => via.cost = cost(value)?,
                ("cap", Some(value)) => via.cap = Some(value.parse()?),
                ("limit", Some(value)) => via.limit = Some(quantity::rate(value).map_err(ViaError)?),
                _ => {
                    let wants = "expected backup, cost=5, cap=20GB/month or limit=5M";
                    return Err(ViaError(format!("`{condition}` of {name}: {wants}")));
                }
            }
        }
        Ok(via)
    }
}

fn cost(text: &str) -> Result<u32, ViaError> {
    let cost = text.parse().ok().filter(|cost| *cost <= COST_MAX && text.starts_with(|c: char| c != '+'));
    cost.ok_or_else(|| ViaError(format!("the cost `{text}` is no number from 0 to {COST_MAX}")))
}

impl FromStr for Cap {
    type Err = ViaError;

    fn from_str(text: &str) -> Result<Self, ViaError> {
        let wrong = || ViaError(format!("`{text}` is no cap: expected 20GB/month, 1.5GB/week or 500MB/day"));
        let (amount, period) = text.split_once('/').ok_or_else(wrong)?;
        let (_, period) = Period::NAMES.into_iter().find(|(name, _)| *name == period).ok_or_else(wrong)?;
        let digits = amount.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, unit) = amount.split_at(digits);
        let (_, unit) =
            UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || part.is_empty() || part.len() > 12 || part.contains('.') {
            return Err(wrong());
        }
        let part_unit = 10_u64.pow(part.len() as u32);
        let (whole, part): (u64, u64) =
            (whole.parse().map_err(|_| wrong())?, part.parse().map_err(|_| wrong())?);
        // At most 12 digits of a unit of at most 10^12 fit into 128 bits.
        let part = u128::from(part) * u128::from(unit) / u128::from(part_unit);
        let bytes = u128::from(whole) * u128::from(unit) + part;
        let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or_else(wrong)?;
        Ok(Self { bytes, period })
    }
}

/// Writes the largest unit of which the number is a multiple, so that parsing the text gives the same number.
impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, unit): &(&str, u64)| self.bytes.is_multiple_of(*unit);
        let (name, unit) = UNITS.into_iter().find(fits).unwrap_or(("B", 1));
        write!(f, "{}{name}/{}", self.bytes / unit, self.period)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = Self::NAMES[*self as usize];
        f.write_str(name)
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let backup = self.is_backup.then(|| "backup".to_owned());
        let cost = (self.cost > 0).then(|| format!("cost={}", self.cost));
        let cap = self.cap.map(|cap| format!("cap={cap}"));
        let limit = self.limit.map(|limit| format!("limit={}", limit.as_bytes()));
        let conditions: Vec<_> = [backup, cost, cap, limit].into_iter().flatten().collect();
        if conditions.is_empty() { Ok(()) } else { write!(f, ":{}", conditions.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Via {
        text.parse().unwrap()
    }

    #[test]
    fn links_are_read() {
        assert_eq!(read("wlan0"), Via::new("wlan0"));
        assert_eq!(read("wwan0:backup"), Via { is_backup: true, ..Via::new("wwan0") });
        let cap = Some(Cap { bytes: 20_000_000_000, period: Period::Month });
        assert_eq!(read("wwan0:cost=5,cap=20GB/month"), Via { cost: 5, cap, ..Via::new("wwan0") });
        assert_eq!(read("a:cap=1.5gb/week").cap, Some(Cap { bytes: 1_500_000_000, period: Period::Week }));
        assert_eq!(read("a:cap=0.25TB/day").to_string(), "a:cap=250GB/day");
        assert_eq!(read("eth0.7:cost=0").to_string(), "eth0.7");
        let limit = Some(Rate::from_bytes(500_000));
        for (text, name) in [
            ("eth0:limit=500k", "eth0"),
            ("eth0,limit=500k", "eth0"),
            ("192.0.2.7:limit=4Mbit", "192.0.2.7"),
            ("fe80::1%eth0:limit=500kB/s", "fe80::1%eth0"),
            ("a,b:limit=500k", "a,b"),
        ] {
            assert_eq!(read(text), Via { limit, ..Via::new(name) }, "{text}");
        }
        assert_eq!(read("2001:db8::7"), Via::new("2001:db8::7"));
        assert_eq!(read("fe80::1%eth0"), Via::new("fe80::1%eth0"));
    }

    #[test]
    fn what_a_command_cannot_do_it_refuses() {
        let via = || read("wwan0:backup,limit=5M");
        assert_eq!(via().allow("get", &["limit", "backup"]), Ok(via()));
        let error = via().allow("get", &["limit"]).unwrap_err().to_string();
        assert_eq!(error, "`backup` of wwan0: get cannot do that, but limit");
    }

    #[test]
    fn what_is_no_link_is_refused_with_what_would_be_one() {
        for (text, says) in [
            ("", "`` is no name of an interface"),
            ("an-interface-that-is-long", "is no name of an interface"),
            ("a/b", "is no name"),
            ("..", "is no name"),
            ("wwan0:", "`` of wwan0: expected backup, cost=5, cap=20GB/month or limit=5M"),
            ("wwan0:limit=fast", "'fast' is no rate"),
            ("fe80::1%:backup", "no address"),
            ("1.2.3.4.5:backup,", "`` of 1.2.3.4.5"),
            ("wwan0:price=5", "`price=5` of wwan0: expected"),
            ("wwan0:backup=1", "expected backup"),
            ("wwan0:cost=-1", "the cost `-1` is no number from 0"),
            ("wwan0:cost=1,cost=2", "`cost` is there twice"),
            ("wwan0:cap=20GB", "`20GB` is no cap: expected 20GB/month"),
            ("wwan0:cap=20/month", "is no cap"),
            ("wwan0:cap=0GB/month", "is no cap"),
            ("wwan0:cap=1..5GB/month", "is no cap"),
            ("wwan0:cap=99999999999TB/month", "is no cap"),
        ] {
            let error = text.parse::<Via>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn links_must_make_sense_together() {
        let says = |texts: &[&str]| {
            let links: Vec<_> = texts.iter().map(|text| read(text)).collect();
            check(&links).map_err(|e| e.to_string())
        };
        assert_eq!(says(&[]), Ok(()));
        assert_eq!(says(&["wlan0", "wwan0:backup"]), Ok(()));
        assert_eq!(says(&["a", "a:cost=2"]), Err("the link a is named twice".to_owned()));
        assert_eq!(says(&["a", "b:cap=1GB/day"]), Ok(()));
        assert!(says(&["a:backup"]).unwrap_err().contains("every link is a backup"));
        assert!(
            says(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]).unwrap_err().contains("8 links at most")
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            name in "[a-z][a-z0-9._@-]{0,14}|10\\.[0-9]\\.0\\.1|fe80::[1-9]%[a-z]{1,9}",
            is_backup: bool,
            cost in 0..=COST_MAX,
            cap in proptest::option::of((1..=u64::MAX, 0..3_usize)),
            limit in proptest::option::of(1_500..1_u64 << 40),
        ) {
            let cap = cap.map(|(bytes, period)| Cap { bytes, period: Period::NAMES[period].1 });
            let limit = limit.map(Rate::from_bytes);
            let via = Via { name, is_backup, cost, cap, limit };
            prop_assert_eq!(read(&via.to_string()), via);
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,40}", cap in "[0-9.]{0,24}[kMGT]?B/(day|week|month)") {
            let _ = text.parse::<Via>();
            let _ = cap.parse::<Cap>();
        }
    }
}
