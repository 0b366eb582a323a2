//! The plan: which profiles run in which settings, as a TOML file has it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anabranch_algo::Span;
use anabranch_lab::scenario::{Duration, SizeSpec};
use anabranch_net::nearest;
use serde::{Deserialize, Serialize};

use crate::compare::Compare;
use crate::network::{self, Access, Interface, Network};
use crate::profile::{Event, Kind, Profile};
use crate::setting::{Interfaces, Transport};

/// A test may not take this long.
const TIMEOUT_MAX: Span = Span::from_secs(120);
/// The most times that a test is repeated.
const REPEAT_MAX: u32 = 1_000;
/// The longest chat, call or film, seconds.
const SECONDS_MAX: f64 = 110.0;

/// The plans that are part of the program: name and text.
const BUILT_IN: &[(&str, &str)] =
    &[("phone", include_str!("../plans/phone.toml")), ("quick", include_str!("../plans/quick.toml"))];

/// A plan that makes no sense; the text says where, why, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The title of the page.
    #[serde(default)]
    pub title: String,
    /// Decides the order of the tests and everything random on links.
    #[serde(default = "one_seed")]
    pub seed: u64,
    /// How often each test runs.
    #[serde(default = "one")]
    pub repeat: u32,
    /// The transports.
    pub transports: Vec<Transport>,
    /// The interfaces that are on.
    #[serde(default = "both")]
    pub interfaces: Vec<Interfaces>,
    /// The interfaces with the default route.
    #[serde(default = "wifi")]
    pub default: Vec<Interface>,
    /// The networks, in the order of the tables.
    pub networks: Vec<String>,
    /// The profiles, in the order of the tables.
    pub profiles: Vec<String>,
    /// After this time a test is ended.
    #[serde(default = "minute")]
    pub timeout: Duration,
    /// Whether the captures are kept in the directory.
    #[serde(default)]
    pub keep_captures: bool,
    /// The definitions of networks.
    #[serde(default)]
    pub network: BTreeMap<String, Network>,
    /// The definitions of access links.
    #[serde(default)]
    pub access: BTreeMap<String, Access>,
    /// The definitions of profiles.
    #[serde(default)]
    pub profile: BTreeMap<String, Profile>,
    /// Numbers beside those of papers.
    #[serde(default)]
    pub compare: Vec<Compare>,
}

const fn one_seed() -> u64 {
    1
}

const fn one() -> u32 {
    1
}

fn both() -> Vec<Interfaces> {
    vec![Interfaces::Both]
}

fn wifi() -> Vec<Interface> {
    vec![Interface::Wifi]
}

const fn minute() -> Duration {
    Duration(Span::from_secs(60))
}

impl Plan {
    /// Returns the text of the plan that is part of the program by this name.
    #[must_use]
    pub fn built_in(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Returns the names of the plans that are part of the program.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Parses and checks a plan. Traces are looked up from the directory `dir`.
    ///
    /// # Errors
    /// If the plan makes no sense; the error says where and why.
    pub fn parse(text: &str, dir: &Path) -> Result<Self, PlanError> {
        let mut plan: Self = toml::from_str(text).map_err(|error| PlanError(error.to_string()))?;
        for access in plan.access.values_mut() {
            let trace = access.trace.as_mut().filter(|trace| !trace.starts_with("built-in:"));
            if let Some(trace) = trace {
                *trace = dir.join(&*trace).to_string_lossy().into_owned();
            }
        }
        plan.check()?;
        Ok(plan)
    }

    /// Returns the access behind an interface of a network.
    ///
    /// # Errors
    /// If the plan does not define it.
    pub fn access(&self, network: &str, interface: Interface) -> Result<Access, PlanError> {
        let known: Vec<&str> = self.network.keys().map(String::as_str).collect();
        let found = self.network.get(network);
        let found = found.ok_or_else(|| unknown("networks", "network", network, &known))?;
        let name = found.access(interface);
        let access = self.access.get(name).cloned().or_else(|| network::built_in(name));
        access.ok_or_else(|| {
            let mut known: Vec<&str> = network::built_in_names().collect();
            known.extend(self.access.keys().map(String::as_str));
            unknown(&format!("network.{network}.{}", interface.word()), "access", name, &known)
        })
    }

    /// Returns the definition of a profile.
    #[must_use]
    pub fn profile(&self, name: &str) -> Profile {
        self.profile.get(name).cloned().unwrap_or_default()
    }

    fn check(&self) -> Result<(), PlanError> {
        for (key, empty) in [
            ("transports", self.transports.is_empty()),
            ("interfaces", self.interfaces.is_empty()),
            ("default", self.default.is_empty()),
            ("networks", self.networks.is_empty()),
            ("profiles", self.profiles.is_empty()),
        ] {
            if empty {
                return Err(PlanError(format!("{key}: the list is empty, so no test is left")));
            }
        }
        check_names("networks", &self.networks)?;
        check_names("profiles", &self.profiles)?;
        check_timeout("timeout", self.timeout)?;
        check_repeat("repeat", self.repeat)?;
        for network in &self.networks {
            let accesses = Interface::ALL.map(|interface| self.access(network, interface));
            let [wifi, cell] = accesses;
            let made = network::scenario(&[(Interface::Wifi, &wifi?), (Interface::Cell, &cell?)]);
            made.map_err(|why| PlanError(format!("network.{network}: {why}")))?;
        }
        for name in &self.profiles {
            if !self.profile.contains_key(name) && Kind::of_name(name).is_none() {
                let mut known: Vec<&str> = Kind::NAMES.iter().map(|(name, _)| *name).collect();
                known.extend(self.profile.keys().map(String::as_str));
                return Err(unknown("profiles", "profile", name, &known));
            }
        }
        for (name, profile) in &self.profile {
            check_profile(name, profile, &self.networks)?;
        }
        for (number, compare) in self.compare.iter().enumerate() {
            compare.check(&format!("compare.{number}"), &self.profiles, &self.networks).map_err(PlanError)?;
        }
        Ok(())
    }
}

fn unknown(key: &str, what: &str, name: &str, known: &[&str]) -> PlanError {
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("the plan defines no {what}"),
        None => format!("there are {}", known.join(", ")),
    };
    PlanError(format!("{key}: there is no {what} `{name}`: {hint}"))
}

/// Checks names, which become parts of the names of tests and files.
fn check_names(key: &str, names: &[String]) -> Result<(), PlanError> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    for (place, name) in names.iter().enumerate() {
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(PlanError(format!(
                "{key}: `{name}` is no name: use letters, digits, `-`, `_` and `.`"
            )));
        }
        if names[..place].contains(name) {
            return Err(PlanError(format!("{key}: `{name}` is there twice: `repeat` runs tests again")));
        }
    }
    Ok(())
}

fn check_timeout(key: &str, timeout: Duration) -> Result<(), PlanError> {
    if timeout.0 == Span::ZERO || timeout.0 >= TIMEOUT_MAX {
        return Err(PlanError(format!("{key} = \"{timeout}\": a test takes less than 120 s, and some time")));
    }
    Ok(())
}

fn check_repeat(key: &str, repeat: u32) -> Result<(), PlanError> {
    if !(1..=REPEAT_MAX).contains(&repeat) {
        return Err(PlanError(format!("{key} = {repeat}: a test runs from 1 to {REPEAT_MAX} times")));
    }
    Ok(())
}

fn check_profile(name: &str, profile: &Profile, networks: &[String]) -> Result<(), PlanError> {
    let key = format!("profile.{name}");
    if let Some(timeout) = profile.timeout {
        check_timeout(&format!("{key}.timeout"), timeout)?;
    }
    check_repeat(&format!("{key}.repeat"), profile.repeat.unwrap_or(1))?;
    let seconds = profile.seconds.unwrap_or(1.0);
    if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
        return Err(PlanError(format!("{key}.seconds = {seconds}: write a number up to {SECONDS_MAX}")));
    }
    if let Some(SizeSpec::Time(_)) = profile.bytes {
        return Err(PlanError(format!("{key}.bytes: write an amount, as \"10 MB\"")));
    }
    let is_command = profile.kind(name) == Kind::Command;
    if is_command && profile.command.is_none() {
        return Err(PlanError(format!(
            "{key}: it needs a `command`, or a `kind`: {}",
            Kind::NAMES.map(|(name, _)| name).join(", ")
        )));
    }
    if !is_command && (profile.command.is_some() || profile.result.is_some()) {
        return Err(PlanError(format!("{key}: `command` and `result` are for `kind = \"command\"` only")));
    }
    for network in &profile.only.networks {
        if !networks.contains(network) {
            let known: Vec<&str> = networks.iter().map(String::as_str).collect();
            return Err(unknown(&format!("{key}.only.networks"), "network", network, &known));
        }
    }
    for (number, event) in profile.events.iter().enumerate() {
        check_event(&format!("{key}.events.{number}"), event)?;
    }
    Ok(())
}

fn check_event(key: &str, event: &Event) -> Result<(), PlanError> {
    let told = usize::from(event.down.is_some()) + usize::from(event.up.is_some());
    if told + usize::from(event.kill.is_some()) != 1 {
        return Err(PlanError(format!(
            "{key}: an event has one of down = \"wifi\", up = \"wifi\" (or \"cell\") and \
             kill = \"client\" (or \"server\", \"proxy\")"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
transports = ["tcp", "mptcp"]
networks = ["home"]
profiles = ["web", "mine"]
[network.home]
wifi = "wifi-70"
cell = "4g"
[profile.mine]
command = "true"
"#;

    fn refused(text: &str) -> String {
        Plan::parse(text, Path::new("")).expect_err(text).to_string()
    }

    #[test]
    fn plans_of_the_program_are_plans() {
        for name in Plan::built_in_names() {
            let text = Plan::built_in(name).expect("a text");
            let plan = Plan::parse(text, Path::new("")).unwrap_or_else(|e| panic!("{name}: {e}"));
            let again: Plan =
                serde_json::from_value(serde_json::to_value(&plan).expect("JSON")).expect("a plan");
            assert_eq!(plan, again, "{name}");
        }
    }

    #[test]
    fn what_is_missing_has_its_default() {
        let plan = Plan::parse(PLAN, Path::new("")).expect("a plan");
        assert_eq!((plan.seed, plan.repeat, plan.timeout.to_string().as_str()), (1, 1, "60 s"));
        assert_eq!((plan.interfaces, plan.default), (vec![Interfaces::Both], vec![Interface::Wifi]));
        assert_eq!(Profile::default().kind("web"), Kind::Web);
        assert!(Profile::default().is_udp("call"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_hint() {
        let cases = [
            (PLAN.replace("\"home\"]", "\"hme\"]"), "did you mean `home`?"),
            (PLAN.replace("\"4g\"", "\"5g\""), "network.home.cell: there is no access `5g`"),
            (PLAN.replace("\"web\"", "\"wb\""), "did you mean `web`?"),
            (PLAN.replace("command = \"true\"", ""), "profile.mine: it needs a `command`"),
            (PLAN.replace("command =", "comand ="), "unknown field `comand`"),
            (format!("timeout = \"120 s\"\n{PLAN}"), "less than 120 s"),
            (format!("timeout = \"120\"\n{PLAN}"), "write it as"),
            (format!("repeat = 0\n{PLAN}"), "from 1 to 1000"),
            (format!("{PLAN}events = [{{ at = \"1 s\" }}]"), "events.0: an event has one of"),
            (format!("{PLAN}only = {{ networks = [\"away\"] }}"), "there is no network `away`"),
            (PLAN.replace("[\"tcp\", \"mptcp\"]", "[]"), "transports: the list is empty"),
            (PLAN.replace("\"mptcp\"", "\"sctp\""), "unknown variant `sctp`"),
            (format!("{PLAN}[profile.chat]\nseconds = 1e9"), "profile.chat.seconds"),
            (format!("{PLAN}[profile.upload]\nbytes = \"9 s\""), "profile.upload.bytes"),
            (PLAN.replace("[\"web\",", "[\"web\", \"web\","), "`web` is there twice"),
            (PLAN.replace("[\"home\"]", "[\"../home\"]"), "`../home` is no name"),
            (
                format!("{PLAN}[access.slow]\nup = \"1 Mbit/s\"\nrtt = \"9 ms\"").replace("4g", "slow"),
                "down =",
            ),
        ];
        for (text, wanted) in cases {
            let said = refused(&text);
            assert!(said.contains(wanted), "{wanted:?} is not in {said:?}");
        }
    }
}
