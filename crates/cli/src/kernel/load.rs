//! `anabranch kernel load` and `unload`.

use ::kernel::controllers::{self, Controller, Options};
use ::kernel::{Error, default};

use super::args::{Load, Unload};
use super::{inside, wrong};
use crate::exit::{Failure, Outcome};

fn chosen(names: &[String]) -> Result<Vec<&'static Controller>, Failure> {
    let mut chosen: Vec<&'static Controller> = Vec::new();
    for name in names {
        let controller = Controller::by_name(name).map_err(|e| {
            let names: Vec<&str> = controllers::CONTROLLERS.iter().map(|c| c.name).collect();
            Failure::usage(format!("{e}; there are {}", names.join(", ")))
        })?;
        if !chosen.contains(&controller) {
            chosen.push(controller);
        }
    }
    Ok(chosen)
}

/// Loads controllers; those that are loaded already may be made the default.
pub(super) fn load(args: &Load) -> Outcome {
    let chosen = chosen(&args.names)?;
    let new: Vec<&'static Controller> = chosen.iter().filter(|c| !c.is_loaded()).copied().collect();
    if new.is_empty() && !args.default {
        return Err(wrong(Error::Loaded(chosen[0].name.into())));
    }
    if !new.is_empty() {
        let options = Options { tcp: args.tcp, verbose: args.verbose };
        controllers::load(&new, options).map_err(wrong)?;
    }
    if args.default {
        inside(args.netns.as_deref(), || default::set(chosen[0]).map_err(wrong))?;
    }
    let names: Vec<&str> = chosen.iter().map(|c| c.linux).collect();
    let default =
        if args.default { format!(", {} is the default of new sockets", names[0]) } else { String::new() };
    println!("loaded: {}{default}", names.join(", "));
    Ok(())
}

/// Unloads them.
pub(super) fn unload(args: &Unload) -> Outcome {
    let chosen = if args.all { controllers::loaded() } else { chosen(&args.names)? };
    if let Some(missing) = chosen.iter().find(|c| !c.pins().exists()) {
        return Err(wrong(Error::NotLoaded(missing.name.into())));
    }
    let reset = || default::reset(&chosen).map_err(wrong);
    let back = reset()?;
    let there = match &args.netns {
        Some(_) => inside(args.netns.as_deref(), reset)?,
        None => None,
    };
    if args.all {
        controllers::unload_all().map_err(wrong)?;
    } else {
        controllers::unload(&chosen).map_err(wrong)?;
    }
    let names: Vec<&str> = chosen.iter().map(|c| c.linux).collect();
    let what = if names.is_empty() {
        "nothing was loaded".into()
    } else {
        format!("unloaded: {}", names.join(", "))
    };
    let back = back.or(there).map_or(String::new(), |name| format!(", {name} is the default again"));
    println!("{what}{back}");
    Ok(())
}
