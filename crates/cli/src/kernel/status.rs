//! `anabranch kernel status`.

use std::collections::BTreeSet;

use ::kernel::{controllers, default, siblings};
use serde::Serialize;

use super::args::Status;
use super::wrong;
use crate::exit::{Code, Failure, Outcome};

#[derive(Serialize)]
struct Row {
    name: &'static str,
    linux: &'static str,
    connections: usize,
    subflows: usize,
}

#[derive(Serialize)]
struct Report {
    default: String,
    available: Vec<String>,
    controllers: Vec<Row>,
}

/// Prints what is loaded.
pub(super) fn status(args: &Status) -> Outcome {
    let unread = |e| Failure::new(Code::Kernel, format!("cannot read the kernel's settings: {e}"));
    let published = siblings::all().map_err(wrong)?;
    let row = |controller: &&'static controllers::Controller| {
        let mine = published.iter().filter(|p| p.controller == *controller);
        let connections: BTreeSet<u64> = mine.clone().map(|p| p.connection).collect();
        let (connections, subflows) = (connections.len(), mine.count());
        Row { name: controller.name, linux: controller.linux, connections, subflows }
    };
    let report = Report {
        default: default::get().map_err(unread)?,
        available: controllers::available().map_err(unread)?,
        controllers: controllers::loaded().iter().map(row).collect(),
    };
    if args.json {
        let text = serde_json::to_string(&report).map_err(|e| Failure::other(e.to_string()))?;
        println!("{text}");
        return Ok(());
    }
    println!("default of new sockets here: {}", report.default);
    println!("to choose from here: {}", report.available.join(" "));
    if report.controllers.is_empty() {
        println!("none of ours is loaded: anabranch kernel load nmcc --default");
    }
    for Row { linux, connections, subflows, .. } in report.controllers {
        println!("{linux}: loaded, {connections} MPTCP connections with {subflows} subflows");
    }
    Ok(())
}
