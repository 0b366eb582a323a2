//! The settings in which a profile runs: transport and interfaces.

use serde::{Deserialize, Serialize};

use crate::network::Interface;

/// What carries the program's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The program as it is.
    Tcp,
    /// The kernel's Multipath TCP.
    Mptcp,
    /// The proxy over the kernel's Multipath TCP.
    Proxy,
    /// The proxy over Multipath TCP of its own in UDP.
    ProxyUdp,
}

impl Transport {
    /// All transports.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Mptcp, Self::Proxy, Self::ProxyUdp];

    /// Returns the word for the transport in plans and results.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Mptcp => "mptcp",
            Self::Proxy => "proxy",
            Self::ProxyUdp => "proxy-udp",
        }
    }

    /// Whether the proxy is between the program and the server.
    #[must_use]
    pub const fn is_proxy(self) -> bool {
        matches!(self, Self::Proxy | Self::ProxyUdp)
    }
}

/// The interfaces that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interfaces {
    /// WiFi alone.
    Wifi,
    /// The mobile interface alone.
    Cell,
    /// Both.
    Both,
}

impl Interfaces {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::Wifi, Self::Cell, Self::Both];

    /// Returns the word for the choice in plans and results.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Wifi => "wifi",
            Self::Cell => "cell",
            Self::Both => "both",
        }
    }

    /// Whether an interface is on.
    #[must_use]
    pub const fn has(self, interface: Interface) -> bool {
        matches!(
            (self, interface),
            (Self::Both, _) | (Self::Wifi, Interface::Wifi) | (Self::Cell, Interface::Cell)
        )
    }
}
