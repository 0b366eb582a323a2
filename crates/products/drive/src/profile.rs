//! The profiles of a plan: what a user does with the phone.

use anabranch_lab::scenario::{Duration, RateSpec, SizeSpec};
use serde::{Deserialize, Serialize};

use crate::network::Interface;
use crate::setting::{Interfaces, Transport};

/// What a profile does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// curl fetches a page with its objects, six at a time.
    Web,
    /// curl fetches one file.
    Download,
    /// curl sends one file.
    Upload,
    /// git clones a repository.
    Git,
    /// Small messages and their echoes.
    Chat,
    /// A player fetches segments.
    Video,
    /// UDP packets and their echoes.
    Call,
    /// A command of the plan's author.
    Command,
}

impl Kind {
    /// The profiles that a plan may use without a definition: name and kind.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("web", Self::Web),
        ("download", Self::Download),
        ("upload", Self::Upload),
        ("git", Self::Git),
        ("chat", Self::Chat),
        ("video", Self::Video),
        ("call", Self::Call),
    ];

    /// Returns the kind that a profile of this name has if it does not say otherwise.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Returns the program that the profile needs on the phone, if it is not part of this one.
    #[must_use]
    pub const fn program(self) -> Option<&'static str> {
        match self {
            Self::Web | Self::Download | Self::Upload => Some("curl"),
            Self::Git => Some("git"),
            Self::Chat | Self::Video | Self::Call | Self::Command => None,
        }
    }
}

/// A profile as the plan has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// What it does; without it, what its name says, and else `command`.
    pub kind: Option<Kind>,
    /// The size of a download or an upload.
    pub bytes: Option<SizeSpec>,
    /// How long a chat, a call or the film of a video is.
    pub seconds: Option<f64>,
    /// The rate of a video.
    pub rate: Option<RateSpec>,
    /// The command on the phone, for `sh -c`.
    pub command: Option<String>,
    /// The command that runs on the server meanwhile.
    pub server: Option<String>,
    /// The result is the text after this in the command's output; without it, the last line.
    pub result: Option<String>,
    /// Whether the command speaks UDP.
    pub udp: bool,
    /// What happens during the test.
    pub events: Vec<Event>,
    /// After this time the test is ended; without it, the plan's.
    pub timeout: Option<Duration>,
    /// How often each test runs; without it, the plan's number.
    pub repeat: Option<u32>,
    /// The settings that the profile runs in.
    pub only: Only,
}

impl Profile {
    /// Returns what a profile of this name does.
    #[must_use]
    pub fn kind(&self, name: &str) -> Kind {
        self.kind.or_else(|| Kind::of_name(name)).unwrap_or(Kind::Command)
    }

    /// Whether a profile of this name speaks UDP.
    #[must_use]
    pub fn is_udp(&self, name: &str) -> bool {
        self.udp || self.kind(name) == Kind::Call
    }
}

/// The settings that a profile runs in; an empty list leaves all that the plan has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Only {
    /// The transports.
    pub transports: Vec<Transport>,
    /// The interfaces.
    pub interfaces: Vec<Interfaces>,
    /// The interfaces with the default route.
    pub default: Vec<Interface>,
    /// The networks.
    pub networks: Vec<String>,
}

/// A program that an event kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Victim {
    /// The profile's program on the phone.
    Client,
    /// The web server and the echoes on the server.
    Server,
    /// The proxy's client on the phone.
    Proxy,
}

/// Something that happens while the program runs: exactly one of `down`, `up` and `kill`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The time after the program's start.
    pub at: Duration,
    /// The interface whose links drop everything from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Interface>,
    /// The interface whose links carry packets again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Interface>,
    /// The program that is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Victim>,
}

impl Event {
    /// Returns the interface that the event changes.
    #[must_use]
    pub fn interface(&self) -> Option<Interface> {
        self.down.or(self.up)
    }
}
