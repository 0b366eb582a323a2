//! `anabranch kernel status`.

use std::collections::BTreeSet;

use anabranch_kernel::controllers::{Controller, Presence, Program};
use anabranch_kernel::{Error, controllers, default_cc, subflow_state};
use serde::Serialize;

use super::args::Status;
use super::wrong;
use crate::exit::{Code, Failure, Outcome};
use crate::stdout;
use crate::view::plural;

#[derive(Serialize)]
struct Row {
    name: &'static str,
    linux: &'static str,
    /// `here`, or `elsewhere` if the pins are in a `/sys/fs/bpf` that this process does not see. `None` if
    /// this user may not know.
    pinned: Option<&'static str>,
    /// `None` if this user may not know, or the maps cannot be seen from here.
    connections: Option<usize>,
    subflows: Option<usize>,
    /// The programs that this user may see.
    programs: Vec<Program>,
}

#[derive(Serialize)]
struct Report {
    /// Whether MPTCP is on; `None` if the kernel has no MPTCP.
    mptcp: Option<bool>,
    default: String,
    available: Vec<String>,
    controllers: Vec<Row>,
}

/// Prints what is loaded, as far as this user may know.
pub(super) fn status(args: &Status) -> Outcome {
    let unreadable = |e| Failure::new(Code::Kernel, format!("cannot read the kernel's settings: {e}"));
    let available = controllers::available().map_err(unreadable)?;
    let published = match subflow_state::all() {
        _ if !controllers::can_see_pins() => None,
        Err(Error::Permission(_)) => None,
        other => Some(other.map_err(wrong)?),
    };
    let row = |controller: &'static Controller| {
        let pinned = match controllers::presence(controller, &available) {
            Presence::Here => Some("here"),
            Presence::Elsewhere => Some("elsewhere"),
            // A user who may see the pins knows that the controller is absent. For others, the listed name
            // must do.
            Presence::Absent if controllers::can_see_pins() => return None,
            Presence::Absent => available.iter().any(|name| name == controller.linux).then_some(None)?,
        };
        let published = published.as_ref().filter(|_| pinned != Some("elsewhere"));
        let mine = published.map(|all| all.iter().filter(|p| p.controller == controller));
        let connections =
            mine.clone().map(|mine| mine.map(|p| p.connection).collect::<BTreeSet<u64>>().len());
        let (name, linux, subflows) = (controller.name, controller.linux, mine.map(Iterator::count));
        Some(Row { name, linux, pinned, connections, subflows, programs: controllers::programs(controller) })
    };
    let report = Report {
        mptcp: controllers::mptcp(),
        default: default_cc::get().map_err(unreadable)?,
        controllers: controllers::CONTROLLERS.iter().filter_map(row).collect(),
        available,
    };
    if args.json {
        let text = serde_json::to_string(&report).map_err(|e| Failure::other(e.to_string()))?;
        stdout::line(text);
        return Ok(());
    }
    if let Err(e) = controllers::is_built() {
        stdout::line(e.to_string());
    }
    stdout::line(format!(
        "MPTCP here: {}",
        match report.mptcp {
            Some(true) => "on",
            Some(false) => "off (sysctl net.mptcp.enabled=1 switches it on)",
            None => "not in this kernel (CONFIG_MPTCP)",
        }
    ));
    let gone = !report.available.contains(&report.default);
    stdout::line(format!(
        "default of new sockets here: {}{}",
        report.default,
        if gone { " (unloaded; `anabranch kernel unload --all` puts the former one back)" } else { "" }
    ));
    stdout::line(format!("to choose from here: {}", report.available.join(" ")));
    if report.controllers.is_empty() && controllers::is_built().is_ok() {
        stdout::line("none of ours is loaded: sudo anabranch kernel load cubic-coupled --default");
    }
    for row in &report.controllers {
        stdout::line(line(row));
    }
    if report.controllers.iter().any(|row| row.pinned == Some("elsewhere")) {
        stdout::line(
            "elsewhere: in another /sys/fs/bpf, a container's or (under `ip netns exec`) the host's",
        );
    }
    if published.is_none() && !report.controllers.is_empty() {
        stdout::line(
            "which connections use them is shown to root (or with CAP_BPF, if the pins may be read)",
        );
    }
    Ok(())
}

fn line(row: &Row) -> String {
    let Row { name, linux, pinned, connections, subflows, programs } = row;
    let mut line =
        if name == linux { format!("{linux}: loaded") } else { format!("{linux} ({name}): loaded") };
    if *pinned == Some("elsewhere") {
        line += ", pinned elsewhere";
    }
    if let (Some(connections), Some(subflows)) = (connections, subflows) {
        let subflows = plural(*subflows, "subflow");
        line += &format!(", {} with {subflows}", plural(*connections, "MPTCP connection"));
    }
    let sum = |of: fn(&Program) -> u64| programs.iter().map(of).fold(0, u64::saturating_add);
    let (calls, time_ns) = (sum(|p| p.calls), sum(|p| p.time_ns));
    if let Some(mean_ns) = time_ns.checked_div(calls) {
        line += &format!(", {} of {mean_ns} ns", plural(calls as usize, "call"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_what_is_loaded() {
        let row = |connections, subflows, programs| Row {
            name: "cubic-coupled",
            linux: "cubic_coupled",
            pinned: Some("here"),
            connections,
            subflows,
            programs,
        };
        assert_eq!(
            line(&row(Some(1), Some(1), Vec::new())),
            "cubic_coupled (cubic-coupled): loaded, 1 MPTCP connection with 1 subflow"
        );
        let programs = [("ack", 3, 500), ("cut", 1, 100)];
        let programs = programs.map(|(on, calls, time_ns)| Program { on, calls, time_ns }).to_vec();
        assert_eq!(
            line(&row(Some(0), Some(2), programs)),
            "cubic_coupled (cubic-coupled): loaded, 0 MPTCP connections with 2 subflows, 4 calls of 150 ns"
        );
        assert_eq!(
            line(&Row { name: "cubic_coupled", ..row(None, None, Vec::new()) }),
            "cubic_coupled: loaded"
        );
        assert_eq!(
            line(&Row { pinned: Some("elsewhere"), ..row(None, None, Vec::new()) }),
            "cubic_coupled (cubic-coupled): loaded, pinned elsewhere"
        );
    }
}
