//! Starts, lists and ends instances, by the agent of this host.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;

use anabranch_machines::store::Store;
use anabranch_operator::control::{Ask, Client, Shown, Told};
use anabranch_operator::functions;
use anabranch_operator::wasm::MODULE_BYTES_MAX;
use serde::Serialize;

use super::args::{Console, Ls, Move, Run};
use super::failure::failure;
use crate::exit::{Failure, Outcome};
use crate::view::{note, printable};
use crate::{json, stdout};

/// What a start took, microseconds.
#[derive(Serialize)]
struct StartedLine<'a> {
    name: &'a str,
    compile_us: u64,
    instantiate_us: u64,
    configure_us: u64,
    record_us: u64,
    attach_us: u64,
}

#[derive(Serialize)]
struct ConsoleLine<'a> {
    #[serde(flatten)]
    instance: &'a Shown,
    /// What the function says.
    report: serde_json::Map<String, serde_json::Value>,
}

/// A move that ended.
#[derive(Serialize)]
struct MovedLine<'a> {
    name: &'a str,
    to: &'a str,
    /// How long it stood still, microseconds.
    still_us: u64,
    state_bytes: usize,
    late_bytes: usize,
    /// The frames that came meanwhile and followed it, and those that came later.
    waited: usize,
    late: usize,
    links: BTreeMap<String, u64>,
}

/// Returns the module of a function that has a name, or is a file.
pub(super) fn module(function: &str) -> Outcome<Vec<u8>> {
    if !function.ends_with(".wasm") {
        return functions::find(function).map(<[u8]>::to_vec).map_err(failure);
    }
    let failed =
        |e: std::io::Error| Failure::usage(format!("{function}: {e}")).at(std::path::Path::new(function));
    let mut module = Vec::new();
    // One byte more than allowed, so that a longer file is refused.
    let most = MODULE_BYTES_MAX as u64 + 1;
    File::open(function).and_then(|file| file.take(most).read_to_end(&mut module)).map_err(failed)?;
    Ok(module)
}

fn unexpected(told: &Told) -> Failure {
    Failure::other(format!("the agent answers another question: {told:?}"))
}

/// Starts an instance.
pub(super) fn run(store: &Store, args: &Run) -> Outcome {
    let module = module(&args.function)?;
    let ask = Ask::Run {
        name: args.name.clone(),
        function: args.function.clone(),
        module_bytes: module.len(),
        settings: args.set.clone(),
        inside: args.inside,
        outside: args.outside,
        gateway: args.gateway,
    };
    let told =
        Client::connect(store.dir()).and_then(|mut client| client.ask(&ask, &module)).map_err(failure)?;
    let Told::Ran { costs_us } = told else { return Err(unexpected(&told)) };
    let [compile_us, instantiate_us, configure_us, record_us, attach_us] = costs_us;
    if args.json {
        let name = &args.name;
        json::put(
            "started",
            &StartedLine { name, compile_us, instantiate_us, configure_us, record_us, attach_us },
        );
        return Ok(());
    }
    let ms = |us: u64| us as f64 / 1_000.0;
    note(&format!(
        "{} runs after {:.2} ms (of which {:.2} to compile its function)",
        args.name,
        ms(costs_us.iter().sum()),
        ms(compile_us)
    ));
    Ok(())
}

/// Lists instances.
pub(super) fn list(store: &Store, args: &Ls) -> Outcome {
    let mut client = Client::connect(store.dir()).map_err(failure)?;
    let mut told = client.ask(&Ask::List, &[]).map_err(failure)?;
    let mut is_empty = true;
    loop {
        let shown = match told {
            Told::Instance(shown) => shown,
            Told::Done => break,
            other => return Err(unexpected(&other)),
        };
        is_empty = false;
        if args.json {
            json::put("instance", &shown);
        } else {
            let outside = shown.outside.map(|place| format!(" {place}")).unwrap_or_default();
            let line = format!(
                "{:<16} {:<10} {:<12} {}{outside}  {} passed, {} dropped, {} lost",
                shown.name,
                shown.function,
                shown.state,
                shown.inside,
                shown.passed + shown.replied,
                shown.dropped,
                shown.lost
            );
            stdout::line(printable(&line));
        }
        told = client.answer().map_err(failure)?;
    }
    if is_empty && !args.json {
        note("no instance runs here: `anabranch op fn run` starts one");
    }
    Ok(())
}

/// Shows what an instance has done.
pub(super) fn console(store: &Store, args: &Console) -> Outcome {
    let ask = Ask::Console { name: args.name.clone() };
    let told = Client::connect(store.dir()).and_then(|mut client| client.ask(&ask, &[])).map_err(failure)?;
    let Told::Console { shown, report } = told else { return Err(unexpected(&told)) };
    let numbers = report.lines().filter_map(|line| line.split_once(' '));
    if args.json {
        let report = numbers
            .filter_map(|(name, number)| Some((name.to_owned(), number.parse::<u64>().ok()?.into())))
            .collect();
        json::put("console", &ConsoleLine { instance: &shown, report });
        return Ok(());
    }
    let outside = shown.outside.map(|place| format!(", outside {place}")).unwrap_or_default();
    let mut lines = vec![
        format!("{}: {}, {} for {} s", shown.name, shown.function, shown.state, shown.age_ms / 1_000),
        format!("inside {}{outside}, MAC {}", shown.inside, shown.mac),
        format!(
            "host: {} came, {} passed, {} answered, {} dropped, {} lost",
            shown.came, shown.passed, shown.replied, shown.dropped, shown.lost
        ),
    ];
    lines.extend(shown.why.iter().map(|why| format!("failed: {why}")));
    lines.extend(numbers.map(|(name, number)| format!("function: {name} {number}")));
    lines.iter().for_each(|line| stdout::line(printable(line)));
    Ok(())
}

/// Moves an instance.
pub(super) fn go(store: &Store, args: &Move) -> Outcome {
    let ask = Ask::Move { name: args.name.clone(), to: args.to.clone(), via: args.via.clone() };
    let told = Client::connect(store.dir()).and_then(|mut client| client.ask(&ask, &[])).map_err(failure)?;
    let Told::Moved { still_us, state_bytes, late_bytes, waited, late, links, note: text } = told else {
        return Err(unexpected(&told));
    };
    if let Some(text) = text {
        note(&text);
    }
    let (name, to) = (&args.name, &args.to);
    if args.json {
        json::put("moved", &MovedLine { name, to, still_us, state_bytes, late_bytes, waited, late, links });
        return Ok(());
    }
    let links: Vec<String> = links.iter().map(|(link, bytes)| format!("{link} {bytes}")).collect();
    note(&format!(
        "{name} runs at {to}: it stood still for {:.1} ms, {} packets waited, {late} came later; its state \
         has {state_bytes} bytes (bytes by link: {})",
        still_us as f64 / 1_000.0,
        waited,
        links.join(", ")
    ));
    Ok(())
}

/// Ends an instance.
pub(super) fn end(store: &Store, name: &str) -> Outcome {
    let ask = Ask::End { name: name.to_owned() };
    let told = Client::connect(store.dir()).and_then(|mut client| client.ask(&ask, &[])).map_err(failure)?;
    match told {
        Told::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}
