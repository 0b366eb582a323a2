//! Checks flows of TCP and Multipath TCP.

use anabranch_algo::control::ALGORITHMS;
use anabranch_mptcp::{Config, SUBFLOWS_MAX};

use super::super::{Flow, Groups, Scenario, ScenarioError, Transport};
use super::{Checked, ensure};

/// Checks that a flow of TCP or Multipath TCP is one that the stack can run, and that other flows have no
/// settings of it.
pub(super) fn check(scenario: &Scenario, flow: &Flow, key: &str) -> Checked {
    let at = |field: &str| format!("{key}.{field}");
    if !flow.is_tcp() {
        return ensure(flow.stack.is_empty(), at("stack"), || {
            "only flows with `transport = \"tcp\"` or `\"mptcp\"` have a stack".into()
        });
    }
    let is_plain = flow.transport == Transport::Tcp;
    ensure(!is_plain || flow.paths.len() == 1, at("paths"), || {
        "TCP has one path: write `transport = \"mptcp\"` for several".into()
    })?;
    ensure(flow.paths.len() <= SUBFLOWS_MAX, at("paths"), || {
        format!("MPTCP has at most {SUBFLOWS_MAX} paths")
    })?;
    ensure(!is_plain || !flow.stack.is_of_mptcp(), at("stack"), || {
        "TCP has no scheduler and no path manager".into()
    })?;
    ensure(flow.groups == Groups::All, at("groups"), || {
        "MPTCP couples all its subflows: choose an uncoupled controller instead".into()
    })?;
    flow.stack
        .apply(&mut Config::default())
        .map_err(|(field, what)| ScenarioError::at(at(&format!("stack.{field}")), what))?;
    let compared = || scenario.controllers.iter().map(String::as_str);
    let alone = flow.controller.as_deref().or((flow.paths.len() == 1).then_some("reno"));
    let name = alone.into_iter().chain(compared().filter(|_| alone.is_none()));
    let paced = |name: &&str| {
        let rule = name.split('+').next().unwrap_or(name);
        !ALGORITHMS.iter().any(|row| row.name == rule && row.slow_start.is_some())
    };
    let unfit = name.into_iter().find(paced);
    ensure(unfit.is_none(), at("controller"), || {
        format!(
            "`{}` cannot run in TCP and MPTCP, which do not pace and have only the controllers of the \
             program's own table: name another one",
            unfit.unwrap_or_default()
        )
    })
}
