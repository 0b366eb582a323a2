//! `anabranch kernel load` and `unload`.

use anabranch_kernel::Error;
use anabranch_kernel::controllers::{self, Controller, Options};
use anabranch_kernel::default_cc::{self, Restored};

use super::args::{Load, Unload};
use super::{NamespaceArg, netns_option, wrong, wrong_here};
use crate::exit::{Code, Failure, Outcome};
use crate::names::show;
use crate::stdout;
use crate::view::{note, plural};

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

/// Says why a controller is a bad default: on sockets without siblings it is not CUBIC.
fn warning_of_default(controller: &Controller) -> Option<String> {
    let name = controller.name;
    match name {
        "cubic-coupled" => None,
        "wvegas" => {
            Some(format!("{name} as the default is itself for connections of one path too, not CUBIC"))
        }
        _ => Some(format!(
            "{name} as the default makes Reno of all connections of one path: cubic-coupled leaves them CUBIC"
        )),
    }
}

/// Loads controllers. Those that are loaded already can be made the default.
pub(super) fn load(args: &Load) -> Outcome {
    let chosen = chosen(&args.names)?;
    controllers::is_built().map_err(wrong)?;
    // Errors of the command line are reported before anything is done.
    let place = NamespaceArg::find(args.netns.as_deref())?;
    controllers::may_load().map_err(wrong)?;
    let new: Vec<&'static Controller> = chosen.iter().filter(|c| !c.is_loaded()).copied().collect();
    if new.is_empty() && !args.default {
        return Err(wrong(Error::Loaded(chosen[0].name.into())));
    }
    if !new.is_empty() {
        let options = Options { tcp: args.tcp, verbose: args.verbose };
        controllers::load(&new, options).map_err(|e| wrong_here(e, &load_words(args)))?;
    }
    if args.default
        && let Err(failure) = place.run(|| default_cc::set(chosen[0]).map_err(wrong))
    {
        // If the default cannot be set, nothing stays loaded.
        let _ = default_cc::reset(&new);
        let _ = controllers::unload(&new);
        return Err(failure);
    }
    let names: Vec<&str> = chosen.iter().map(|c| c.linux).collect();
    let default = match args.default {
        true => format!("; {} is the default of new sockets {}", names[0], place.name()),
        false => String::new(),
    };
    stdout::line(format!("loaded: {}{default}", names.join(", ")));
    if args.default
        && let Some(warning) = warning_of_default(chosen[0])
    {
        note(&warning);
    }
    Ok(())
}

/// Returns the words of the same command, for use outside of this network namespace.
fn load_words(args: &Load) -> String {
    let default = match (args.default, &args.netns) {
        (false, _) => String::new(),
        (true, None) => format!(" --default{}", netns_option()),
        (true, Some(name)) => format!(" --default --netns {}", show(name)),
    };
    format!("load {}{default}{}", args.names.join(" "), if args.tcp { " --tcp" } else { "" })
}

/// Unloads controllers, and restores every default that is one of them.
pub(super) fn unload(args: &Unload) -> Outcome {
    let chosen = if args.all { controllers::CONTROLLERS.iter().collect() } else { chosen(&args.names)? };
    controllers::may_unload().map_err(wrong)?;
    let is_pinned = |c: &&Controller| c.pin_dir().exists();
    // With --all, everything that is pinned here is unloaded, even if other controllers are pinned elsewhere.
    if !(args.all && chosen.iter().any(is_pinned)) {
        let missing = chosen.iter().filter(|c| !is_pinned(c)).map(|c| controllers::unpinned(c));
        let mut missing = missing.filter(|e| !args.all || !matches!(e, Error::NotLoaded(_)));
        if let Some(e) = missing.next() {
            let words = if args.all { "--all".into() } else { args.names.join(" ") };
            return Err(wrong_here(e, &format!("unload {words}")));
        }
    }
    let names: Vec<&str> = chosen.iter().filter(|c| c.is_loaded()).map(|c| c.linux).collect();
    // The defaults come first, so that after an interruption the command can be run again.
    let reset = default_cc::reset(&chosen).map_err(wrong)?;
    if args.all {
        controllers::unload_all().map_err(wrong)?;
    } else {
        controllers::unload(&chosen).map_err(wrong)?;
    }
    match names.is_empty() {
        true => stdout::line("nothing was loaded"),
        false => stdout::line(format!("unloaded: {}", names.join(", "))),
    }
    for Restored { location, default, is_known } in &reset.restored {
        let location = show(location);
        stdout::line(match is_known {
            true => format!("{default} is the default of new sockets again {location}"),
            false => format!(
                "{default} is the default of new sockets now {location}: what it was before it was chosen \
                 there is not known"
            ),
        });
    }
    if reset.gone > 0 {
        let are = if reset.gone == 1 { "is" } else { "are" };
        let gone = plural(reset.gone, "namespace");
        stdout::line(format!("forgotten: {gone} with another default that {are} gone"));
    }
    if reset.failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Code::Kernel,
        format!("the default is not put back everywhere: {}", show(reset.failed.join("; "))),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_that_is_not_cubic_for_one_path_is_warned_of() {
        for controller in controllers::CONTROLLERS {
            let warning = warning_of_default(controller);
            match controller.name {
                "cubic-coupled" => assert_eq!(warning, None),
                "wvegas" => assert!(warning.unwrap().contains("itself")),
                name => assert!(warning.unwrap().starts_with(&format!("{name} as the default makes Reno"))),
            }
        }
    }
}
