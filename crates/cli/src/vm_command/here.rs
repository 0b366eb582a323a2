//! Starts, attaches, lists and ends machines of this host.

use std::fs;
use std::path::Path;

use anabranch_house::random::random;
use anabranch_machines::config::{Accelerator, Config, Disk, Format, Nic};
use anabranch_machines::journal::{Departure, Guarded};
use anabranch_machines::launch;
use anabranch_machines::qmp::Qmp;
use anabranch_machines::store::{Machine, Origin, Store};
use anabranch_net::Clock;
use serde::Serialize;

use super::args::{Attach, Ls, Run};
use super::failure::failure;
use crate::exit::{Failure, Outcome};
use crate::view::{note, printable};
use crate::{json, stdout};

/// A machine as a line of JSON.
#[derive(Serialize)]
struct MachineLine<'a> {
    name: &'a str,
    /// `running`, `paused`, `ended`, `moving`, `stands still`, `moved`, or another word of QEMU's.
    state: String,
    /// Where it is or goes, if it moves or has moved.
    to: Option<String>,
    memory_mb: Option<u64>,
    cpus: Option<u16>,
    origin: Option<Origin>,
    pid: Option<i32>,
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|e| Failure::usage(format!("{}: {e}", path.display())).at(path))
}

fn config_of(path: &Path, name: &str) -> Outcome<Config> {
    let mut config = Config::parse(&read(path)?)
        .map_err(|e| Failure::usage(format!("{}: {e}", path.display())).at(path))?;
    config.name = name.to_owned();
    Ok(config)
}

/// Reads a disk as options name it.
fn disk(text: &str) -> Outcome<Disk> {
    let (mut rest, mut shared, mut format) = (text, false, Format::Raw);
    loop {
        rest = match rest.rsplit_once(':') {
            Some((before, "shared")) => {
                shared = true;
                before
            }
            Some((before, "raw")) => before,
            Some((before, "qcow2")) => {
                format = Format::Qcow2;
                before
            }
            _ => break,
        };
    }
    let path = Path::new(rest);
    let path = path.canonicalize().map_err(|e| Failure::usage(format!("the disk {rest}: {e}")).at(path))?;
    Ok(Disk { path, format, shared })
}

fn make(args: &Run) -> Outcome<Config> {
    let mut config = match &args.config {
        Some(path) => config_of(path, &args.name)?,
        None => Config {
            name: args.name.clone(),
            accelerator: Accelerator::Kvm,
            machine: None,
            memory_mb: 512,
            cpus: 1,
            kernel: None,
            initrd: None,
            append: String::new(),
            disks: Vec::new(),
            nics: Vec::new(),
        },
    };
    config.memory_mb = args.memory.unwrap_or(config.memory_mb);
    config.cpus = args.cpus.unwrap_or(config.cpus);
    if args.tcg {
        config.accelerator = Accelerator::Tcg;
    }
    for (own, given) in [(&mut config.kernel, &args.kernel), (&mut config.initrd, &args.initrd)] {
        if let Some(path) = given {
            let real = path.canonicalize();
            *own = Some(real.map_err(|e| Failure::usage(format!("{}: {e}", path.display())).at(path))?);
        }
    }
    if let Some(text) = &args.append {
        config.append.clone_from(text);
    }
    for text in &args.disk {
        config.disks.push(disk(text)?);
    }
    for to in &args.net {
        let seed: [u8; 3] = random().ok_or_else(|| Failure::other("the system gives no random numbers"))?;
        config.nics.push(Nic::new(to, seed).map_err(failure)?);
    }
    config.check().map_err(failure)?;
    Ok(config)
}

/// Starts a machine.
pub(super) fn run(store: &Store, args: &Run) -> Outcome {
    let mut config = make(args)?;
    let clock = Clock::start();
    let name = config.name.clone();
    let busy = || Failure::other(format!("{name} is in use by another command"));
    let _lock = store.lock(&name).map_err(failure)?.ok_or_else(busy)?;
    let known = store.find(&name).map_err(failure)?;
    if known.is_some_and(|known| state_of(&known, clock) != "ended") {
        return Err(Failure::usage(format!("there is a machine {name} here already: choose another name")));
    }
    check_settled(store, &name)?;
    if let Some(protection) = store.protection(&name).map_err(failure)? {
        return Err(Failure::other(format!(
            "{name} has a shadow at {}, which may run it by now: `anabranch vm unprotect {name}` asks, and \
             lets it run here if not",
            protection.to
        )));
    }
    launch::installed().map_err(failure)?;
    let places = store.places(&name).map_err(failure)?;
    let mut started = launch::start(&config, &places, false, clock).map_err(failure)?;
    if config.machine.is_none() {
        config.machine = Some(launch::machine_type(&mut started.qmp).map_err(failure)?);
    }
    let machine = Machine {
        name: name.clone(),
        qmp: places.qmp(),
        look: Some(places.look()),
        beat: Some(places.beat()),
        pid: i32::try_from(started.child.id()).ok(),
        origin: Origin::Run,
        config: Some(config),
    };
    store.set_departure(&name, None).map_err(failure)?;
    store.put(&machine).map_err(failure)?;
    match args.json {
        true => json::put("machine", &line(store, &name, clock)?),
        false => note(&format!("{name} runs; its console: {}", places.console().display())),
    }
    Ok(())
}

/// Refuses a name whose machine is on its way to another host, and may not run here.
fn check_settled(store: &Store, name: &str) -> Outcome {
    match store.departure(name).map_err(failure)?.map(|departure| departure.state) {
        None | Some(Departure::Gone) => Ok(()),
        Some(Departure::Moving | Departure::Given) => {
            let text = format!("a move of {name} was interrupted: `anabranch vm recover {name}` settles it");
            Err(Failure::other(text))
        }
    }
}

/// Makes a machine known.
pub(super) fn attach(store: &Store, args: &Attach) -> Outcome {
    let clock = Clock::start();
    let config = args.config.as_ref().map(|path| config_of(path, &args.name)).transpose()?;
    let busy = || Failure::other(format!("{} is in use by another command", args.name));
    let _lock = store.lock(&args.name).map_err(failure)?.ok_or_else(busy)?;
    check_settled(store, &args.name)?;
    let known = store.find(&args.name).map_err(failure)?;
    if known.is_some_and(|known| known.origin != Origin::Attached && state_of(&known, clock) != "ended") {
        return Err(Failure::usage(format!("there is a machine {} here already", args.name)));
    }
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))
    };
    let qmp = absolute(&args.qmp)?;
    let version = Qmp::connect(&qmp, clock).map_err(failure)?.version();
    launch::check(version).map_err(failure)?;
    let beat = args.heartbeat.as_deref().map(absolute).transpose()?;
    let name = args.name.clone();
    let machine = Machine { name, config, qmp, look: None, beat, pid: None, origin: Origin::Attached };
    store.set_departure(&args.name, None).map_err(failure)?;
    store.put(&machine).map_err(failure)?;
    match args.json {
        true => json::put("machine", &line(store, &args.name, clock)?),
        false => note(&format!("{} is known: QEMU {version}", args.name)),
    }
    Ok(())
}

fn state_of(machine: &Machine, clock: Clock) -> String {
    let socket = machine.look.as_ref().unwrap_or(&machine.qmp);
    match Qmp::connect(socket, clock).and_then(|mut qmp| qmp.status()) {
        Ok(status) => status,
        Err(anabranch_machines::Error::NotFound(_)) => "ended".to_owned(),
        Err(_) => "in use".to_owned(),
    }
}

fn line<'a>(store: &Store, name: &'a str, clock: Clock) -> Outcome<MachineLine<'a>> {
    let machine = store.find(name).map_err(failure)?;
    let departure = store.departure(name).map_err(failure)?;
    let state = match (&machine, departure.as_ref().map(|departure| departure.state)) {
        (_, Some(Departure::Given)) => "stands still".to_owned(),
        (None, _) => "moved".to_owned(),
        (Some(_), Some(Departure::Moving)) => "moving".to_owned(),
        (Some(machine), _) => state_of(machine, clock),
    };
    let config = machine.as_ref().and_then(|machine| machine.config.as_ref());
    Ok(MachineLine {
        name,
        state,
        to: departure.map(|departure| departure.to),
        memory_mb: config.map(|config| config.memory_mb),
        cpus: config.map(|config| config.cpus),
        origin: machine.as_ref().map(|machine| machine.origin.clone()),
        pid: machine.as_ref().and_then(|machine| machine.pid),
    })
}

/// Lists machines.
pub(super) fn list(store: &Store, args: &Ls) -> Outcome {
    let clock = Clock::start();
    let names = store.machines().map_err(failure)?;
    if names.is_empty() && !args.json {
        note("no machine is known here: `anabranch vm run` starts one, `vm attach` takes one that runs");
    }
    for name in &names {
        let line = line(store, name, clock)?;
        if args.json {
            json::put("machine", &line);
            continue;
        }
        let to = line.to.map(|to| format!(" to {to}")).unwrap_or_default();
        let size = line.memory_mb.map(|memory| format!("{memory} MB, {} CPU", line.cpus.unwrap_or(1)));
        let state = format!("{}{to}", line.state);
        stdout::line(printable(&format!("{name:<16} {state:<24} {}", size.unwrap_or_default())));
    }
    Ok(())
}

/// Ends a machine at once.
pub(super) fn stop(store: &Store, name: &str) -> Outcome {
    let clock = Clock::start();
    let busy = || Failure::other(format!("{name} is in use by another command"));
    let _lock = store.lock(name).map_err(failure)?.ok_or_else(busy)?;
    let machine = store.machine(name).map_err(failure)?;
    if store.departure(name).map_err(failure)?.is_some_and(|departure| departure.state != Departure::Gone) {
        return Err(Failure::other(format!(
            "a move of {name} is not settled: `anabranch vm recover {name}` does that"
        )));
    }
    let protection = store.protection(name).map_err(failure)?;
    if protection.is_some_and(|protection| matches!(protection.state, Guarded::Copying | Guarded::Following))
    {
        return Err(Failure::other(format!(
            "{name} is protected: `anabranch vm unprotect {name}` ends that first"
        )));
    }
    let socket = machine.look.as_ref().unwrap_or(&machine.qmp);
    match Qmp::connect(socket, clock) {
        Ok(qmp) => launch::end(qmp, clock).map_err(failure)?,
        Err(anabranch_machines::Error::NotFound(_)) => {}
        Err(e) => return Err(failure(e)),
    }
    store.forget(name).map_err(failure)
}

/// Takes a machine off the list; its QEMU goes on.
pub(super) fn forget(store: &Store, name: &str) -> Outcome {
    let busy = || Failure::other(format!("{name} is in use by another command"));
    let _lock = store.lock(name).map_err(failure)?.ok_or_else(busy)?;
    match store.departure(name).map_err(failure)?.map(|departure| departure.state) {
        Some(Departure::Moving | Departure::Given) => {
            let text = format!("a move of {name} is not settled: `anabranch vm recover {name}` does that");
            return Err(Failure::other(text));
        }
        Some(Departure::Gone) => store.set_departure(name, None).map_err(failure)?,
        None => drop(store.machine(name).map_err(failure)?),
    }
    store.forget(name).map_err(failure)
}
