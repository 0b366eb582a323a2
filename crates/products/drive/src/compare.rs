//! The numbers that a plan sets beside those of papers.

use serde::{Deserialize, Serialize};

use crate::network::Interface;
use crate::setting::Transport;

/// A share of the results, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Of the bytes on the links, those over WiFi.
    WifiBytes,
    /// Of the bytes on the links, those over the mobile interface.
    CellBytes,
    /// Of the connections with data, those whose data went over WiFi alone.
    WifiConnections,
    /// Of the connections with data, those whose data went over the mobile interface alone.
    CellConnections,
    /// Of the data, the part in connections whose data went over WiFi alone.
    WifiConnectionBytes,
    /// Of the data, the part in connections whose data went over the mobile interface alone.
    CellConnectionBytes,
    /// Of the data from the phone, the part that was reinjected.
    ReinjectedUp,
    /// Of the data towards the phone, the part that was reinjected.
    ReinjectedDown,
}

/// A number of ours beside one of a paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// What is compared, in words.
    pub what: String,
    /// The paper's number, percent.
    pub paper: f64,
    /// The greatest difference that is expected, in points; without it there is no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
    /// What is measured.
    pub measure: Measure,
    /// Only this profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Only this network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Only this transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Only with this default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Interface>,
}

impl Compare {
    /// Checks the comparison, which is at `key` of a plan with these profiles and networks.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn check(&self, key: &str, profiles: &[String], networks: &[String]) -> Result<(), String> {
        for (what, name, known) in
            [("profile", &self.profile, profiles), ("network", &self.network, networks)]
        {
            if let Some(name) = name.as_ref().filter(|name| !known.contains(name)) {
                return Err(format!("{key}.{what}: the plan does not run the {what} `{name}`"));
            }
        }
        if !(0.0..=100.0).contains(&self.paper) {
            return Err(format!("{key}.paper = {}: write a number of percent", self.paper));
        }
        if self.within.is_some_and(|within| within.is_nan() || within < 0.0) {
            return Err(format!("{key}.within: write a number of points from 0 on"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_checked() {
        let compare = Compare {
            what: "x".into(),
            paper: 91.0,
            within: Some(5.0),
            measure: Measure::CellBytes,
            profile: Some("upload".into()),
            network: None,
            transport: None,
            default: None,
        };
        let profiles = ["upload".to_owned()];
        assert_eq!(compare.check("compare.0", &profiles, &[]), Ok(()));
        let why = compare.check("compare.0", &[], &[]).expect_err("no such profile");
        assert!(why.contains("compare.0.profile"), "{why}");
        let why = Compare { paper: 120.0, ..compare }.check("c", &profiles, &[]).expect_err("over 100 %");
        assert!(why.contains("c.paper"), "{why}");
    }
}
