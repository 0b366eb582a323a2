//! The networks of a plan: what the phone's two interfaces lead to, as a scenario of the laboratory.

use std::fmt::Write as _;

use anabranch_lab::scenario::{Duration, RateSpec, Scenario, SizeSpec};
use serde::{Deserialize, Serialize};

/// One of the phone's interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// The WiFi radio.
    Wifi,
    /// The mobile radio.
    Cell,
}

impl Interface {
    /// Both interfaces.
    pub const ALL: [Self; 2] = [Self::Wifi, Self::Cell];

    /// Returns the word for the interface in plans and results.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Wifi => "wifi",
            Self::Cell => "cell",
        }
    }

    /// Returns the other interface.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Wifi => Self::Cell,
            Self::Cell => Self::Wifi,
        }
    }
}

/// An access link in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// The rate towards the phone; with a trace, the trace decides.
    pub down: Option<RateSpec>,
    /// The rate from the phone.
    pub up: RateSpec,
    /// The round-trip time without queues.
    pub rtt: Duration,
    /// The size of the queue of each direction.
    #[serde(default = "queue")]
    pub queue: SizeSpec,
    /// The probability that a packet is lost, in each direction: `0.01` or `"1 %"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Probability>,
    /// The path of a trace in mahimahi's format, which says when packets may leave towards the phone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// A probability as a scenario writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Probability {
    /// A number from 0 to 1.
    Number(f64),
    /// A text such as `1 %`.
    Text(String),
}

fn queue() -> SizeSpec {
    SizeSpec::Time(anabranch_algo::Span::from_millis(150))
}

/// The accesses of the phone's two interfaces, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The access behind the WiFi interface.
    pub wifi: String,
    /// The access behind the mobile interface.
    pub cell: String,
}

impl Network {
    /// Returns the name of the access behind an interface.
    #[must_use]
    pub fn access(&self, interface: Interface) -> &str {
        match interface {
            Interface::Wifi => &self.wifi,
            Interface::Cell => &self.cell,
        }
    }
}

/// An access that every plan knows: name, rate down, rate up, round-trip time, queue, trace down.
type KnownAccess = (&'static str, Option<&'static str>, &'static str, &'static str, &'static str, Trace);
/// The path of a trace.
type Trace = Option<&'static str>;

const BUILT_IN: &[KnownAccess] = &[
    ("wifi-70", Some("70 Mbit/s"), "70 Mbit/s", "14 ms", "100 ms", None),
    ("4g", Some("40 Mbit/s"), "12 Mbit/s", "42 ms", "150 ms", None),
    ("3g", Some("6 Mbit/s"), "1.5 Mbit/s", "90 ms", "300 ms", None),
    ("dsl", Some("15 Mbit/s"), "1 Mbit/s", "25 ms", "200 ms", None),
    ("throttled", Some("800 kbit/s"), "800 kbit/s", "60 ms", "300 ms", None),
    ("lte-trace", None, "2 Mbit/s", "60 ms", "200 ms", Some("built-in:traces/saw-1-5.trace")),
];

/// Returns the names of the accesses that every plan knows.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|access| access.0)
}

/// Returns the access that every plan knows by this name.
#[must_use]
pub fn built_in(name: &str) -> Option<Access> {
    let (_, down, up, rtt, queue, trace) = BUILT_IN.iter().find(|access| access.0 == name)?;
    Some(Access {
        down: down.and_then(|down| down.parse().ok()),
        up: up.parse().ok()?,
        rtt: rtt.parse().ok()?,
        queue: queue.parse().ok()?,
        loss: None,
        trace: trace.map(str::to_owned),
    })
}

/// The link of an interface in a direction, as the scenario names it.
#[must_use]
pub fn link_name(interface: Interface, down: bool) -> String {
    format!("{}-{}", interface.word(), if down { "down" } else { "up" })
}

/// The name of the scenario's only flow: `phone.tx` is the phone, `phone.rx` the server.
pub const FLOW: &str = "phone";

/// Makes the scenario of a phone with these interfaces, the one with the default route first.
///
/// # Errors
/// If an access makes no sense; the error is a sentence that names the link.
pub fn scenario(accesses: &[(Interface, &Access)]) -> Result<Scenario, String> {
    let mut text = "title = \"A phone and a server\"\nduration = \"120 s\"\n".to_owned();
    for (interface, access) in accesses {
        for down in [false, true] {
            let _ = writeln!(text, "[link.{}]", link_name(*interface, down));
            match (&access.trace, down) {
                (Some(trace), true) => drop(writeln!(text, "trace = {trace:?}")),
                (_, true) => {
                    let rate = access.down.ok_or("an access needs `down = \"8 Mbit/s\"`, or a `trace`")?;
                    let _ = writeln!(text, "rate = \"{rate}\"");
                }
                (_, false) => drop(writeln!(text, "rate = \"{}\"", access.up)),
            }
            let _ = writeln!(text, "queue = \"{}\"", access.queue);
            match &access.loss {
                Some(Probability::Number(loss)) => drop(writeln!(text, "loss = {loss:?}")),
                Some(Probability::Text(loss)) => drop(writeln!(text, "loss = {loss:?}")),
                None => {}
            }
        }
    }
    let path = |(interface, access): &(Interface, &Access)| {
        let (up, down) = (link_name(*interface, false), link_name(*interface, true));
        format!("{{ via = [\"{up}\"], back = [\"{down}\"], rtt = \"{}\" }}", access.rtt)
    };
    let paths: Vec<String> = accesses.iter().map(path).collect();
    let _ = write!(text, "[flow.{FLOW}]\npaths = [{}]\n", paths.join(", "));
    Scenario::parse(&text, "").map_err(|error| error.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_of_the_program_make_scenarios() {
        for name in built_in_names() {
            let access = built_in(name).expect("it is there");
            let made = scenario(&[(Interface::Wifi, &access), (Interface::Cell, &access)]).expect(name);
            assert_eq!(made.flow[FLOW].paths.len(), 2, "{name}");
            assert!(made.link.contains_key("wifi-down"), "{name}");
        }
    }

    #[test]
    fn a_wrong_access_is_explained() {
        let mut access = built_in("4g").expect("it is there");
        access.loss = Some(Probability::Text("much".into()));
        let why = scenario(&[(Interface::Cell, &access)]).expect_err("no probability");
        assert!(why.contains("cell-up") || why.contains("probability"), "{why}");
        access = Access { loss: None, down: None, ..access };
        let why = scenario(&[(Interface::Cell, &access)]).expect_err("no rate");
        assert!(why.contains("down ="), "{why}");
    }
}
