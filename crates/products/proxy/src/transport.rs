//! What carries trunks: the kernel's MPTCP, or Multipath TCP of the two processes in UDP.
//!
//! The kernel's is faster and knows more of links (probes, costs, caps), so it is used where both kernels and
//! the path have it. Where they do not, trunks of a client with several links go over UDP, at the server's
//! UDP port with the number of its TCP port. If UDP does not pass either, trunks have one path, as TCP.

use std::fmt;
use std::str::FromStr;

use anabranch_algo::control::{ALGORITHMS, Algorithm};
use anabranch_algo::{Span, Time};
use anabranch_mptcp::Config;

/// How long TCP is used after an attempt over UDP that failed.
const UDP_AGAIN: Span = Span::from_secs(60);

/// The user's choice of what carries trunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The kernel's MPTCP where it works, else UDP if there are several links.
    #[default]
    Auto,
    /// The kernel's MPTCP, or TCP where that does not work.
    Kernel,
    /// UDP, and nothing else.
    Udp,
}

impl Choice {
    /// All choices, with their names in settings.
    const NAMES: [(Self, &'static str); 3] =
        [(Self::Auto, "auto"), (Self::Kernel, "kernel"), (Self::Udp, "udp")];
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(choice, _)| choice == self).map_or("", |(_, name)| *name);
        f.write_str(name)
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text).map(|(choice, _)| *choice);
        found.ok_or_else(|| format!("'{text}' is none of auto, kernel and udp"))
    }
}

/// Returns the settings of the stack in UDP. `congestion` is the name of a controller; one that only the
/// kernel has is not used.
pub(crate) fn udp_config(congestion: Option<&str>) -> Config {
    let config = anabranch_mptcp_udp::config();
    // Controllers with a start of their own need segments to be paced, and these are not.
    let mut usable = ALGORITHMS.iter().filter(|row| row.slow_start.is_some()).map(|row| row.name);
    let named =
        congestion.and_then(|wanted| usable.find(|name| *name == wanted)).and_then(Algorithm::by_name);
    Config { congestion_control: named.unwrap_or(config.congestion_control), ..config }
}

/// Chooses what carries the next trunk, and knows why.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    choice: Choice,
    /// Whether UDP is of any use.
    has_udp: bool,
    /// Why the kernel's MPTCP is not used, if it is not.
    why: Option<String>,
    /// Until when UDP is not tried, and how the last attempt failed.
    failed: Option<(Time, String)>,
}

impl Decision {
    /// Begins the decisions of a client. `has_several` is whether it has several links without caps;
    /// `missing` is why its kernel has no MPTCP, if it has none.
    pub(crate) fn new(choice: Choice, has_several: bool, missing: Option<String>) -> Self {
        let why = match choice {
            Choice::Auto => missing,
            Choice::Kernel => None,
            Choice::Udp => Some("as `transport` says".to_owned()),
        };
        Self { choice, has_udp: choice == Choice::Udp || has_several, why, failed: None }
    }

    /// Returns whether the client ever uses UDP.
    pub(crate) const fn may_use_udp(&self) -> bool {
        self.has_udp && !matches!(self.choice, Choice::Kernel)
    }

    /// Returns whether there is nothing but UDP.
    pub(crate) fn is_only_udp(&self) -> bool {
        self.choice == Choice::Udp
    }

    /// Returns whether the next trunk goes over UDP.
    pub(crate) fn is_udp(&self, now: Time) -> bool {
        let is_failed = self.failed.as_ref().is_some_and(|(until, _)| now < *until);
        self.may_use_udp() && self.why.is_some() && (self.is_only_udp() || !is_failed)
    }

    /// Records that a trunk of the kernel has one path, and why. Returns whether UDP is tried now.
    pub(crate) fn has_one_path(&mut self, now: Time, why: String) -> bool {
        if self.may_use_udp() {
            self.why = Some(why);
        }
        self.is_udp(now)
    }

    /// Records that UDP does not lead to the server.
    pub(crate) fn udp_failed(&mut self, now: Time, how: String) {
        self.failed = Some((now + UDP_AGAIN, how));
    }

    /// Records that a trunk goes over UDP.
    pub(crate) fn udp_works(&mut self) {
        self.failed = None;
    }

    /// Returns what carries trunks and why, for people; `None` for the kernel's MPTCP or before it is known
    /// that it does not work.
    pub(crate) fn says(&self) -> Option<String> {
        let why = self.why.as_ref().filter(|_| self.may_use_udp())?;
        Some(match &self.failed {
            Some((_, how)) if !self.is_only_udp() => {
                format!("TCP over one link: {why}, and UDP does not lead to the server ({how})")
            }
            _ => format!("MPTCP over UDP: {why}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::ZERO;

    #[test]
    fn udp_is_used_where_the_kernel_has_no_mptcp_and_there_are_several_links() {
        let decide = |choice, has_several, missing: Option<&str>| {
            let decision = Decision::new(choice, has_several, missing.map(str::to_owned));
            (decision.is_udp(START), decision.says())
        };
        let says = Some("MPTCP over UDP: none here".to_owned());
        assert_eq!(decide(Choice::Auto, true, Some("none here")), (true, says));
        assert_eq!(decide(Choice::Auto, true, None), (false, None));
        assert_eq!(decide(Choice::Auto, false, Some("none here")), (false, None));
        assert_eq!(decide(Choice::Kernel, true, Some("none here")), (false, None));
        let says = Some("MPTCP over UDP: as `transport` says".to_owned());
        assert_eq!(decide(Choice::Udp, false, None), (true, says));
    }

    #[test]
    fn one_path_leads_to_udp_and_a_failure_back_for_a_minute() {
        let mut decision = Decision::new(Choice::Auto, true, None);
        assert!(decision.has_one_path(START, "the other end has no MPTCP".to_owned()));
        assert!(decision.is_udp(START));
        decision.udp_failed(START, "no answer".to_owned());
        assert!(!decision.is_udp(START) && !decision.has_one_path(START, "again".to_owned()));
        assert!(decision.says().unwrap().starts_with("TCP over one link: again, and UDP"));
        assert!(decision.is_udp(START + UDP_AGAIN));
        decision.udp_works();
        assert_eq!(decision.says().as_deref(), Some("MPTCP over UDP: again"));
        let mut only = Decision::new(Choice::Udp, true, None);
        only.udp_failed(START, "no answer".to_owned());
        assert!(only.is_udp(START), "there is nothing else");
        let mut kernel = Decision::new(Choice::Kernel, true, None);
        assert!(!kernel.has_one_path(START, "why".to_owned()) && kernel.says().is_none());
    }

    #[test]
    fn choices_are_named_and_a_controller_of_ours_is_used() {
        for (choice, name) in Choice::NAMES {
            assert_eq!((name.parse(), choice.to_string()), (Ok(choice), name.to_owned()));
        }
        assert!("tcp".parse::<Choice>().unwrap_err().contains("auto, kernel and udp"));
        let named = |name| udp_config(name).congestion_control;
        let [coupled, reno] =
            ["cubic-coupled+hystart", "reno"].map(|name| Algorithm::by_name(name).expect("ours"));
        assert_eq!((named(None), named(Some("bpf_mine"))), (coupled, coupled));
        assert_eq!((named(Some("reno")), named(Some("bbr"))), (reno, coupled));
    }
}
