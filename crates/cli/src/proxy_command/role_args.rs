//! Declares the options of a role on the command line: the settings of the crate `proxy`, each as a flag.

use std::path::PathBuf;

use anabranch_proxy::config::{Key, Settings, Shape};
use clap::builder::{StyledStr, ValueHint};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// Gives the texts about a role in its help.
pub trait About: Settings {
    /// The summary, in one line.
    const ABOUT: &'static str;
    /// The description, in a few lines.
    const LONG: &'static str;
    /// Examples of useful commands.
    const EXAMPLES: &'static str;
}

/// How a role runs, and what is shown of it.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Read settings from this TOML file: the options below, by the same names. Options on the command line
    /// win. SIGHUP reads it again
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Only say whether the settings make sense (exit status 0 or 2), and print those that would be in force
    #[arg(long)]
    pub check: bool,

    /// Report on standard output as JSON, one object a line: where it listens, connections between client and
    /// server, connections of programs that have ended
    #[arg(long)]
    pub json: bool,

    /// Errors only
    #[arg(short, long)]
    pub quiet: bool,
}

/// Holds the options of a role.
#[derive(Clone, Debug)]
pub struct RoleArgs<S> {
    /// The options that both roles have.
    pub common: Common,
    /// The settings that were given on the command line.
    pub flags: S,
}

impl<S: About + 'static> Args for RoleArgs<S> {
    fn augment_args(command: Command) -> Command {
        let command = Common::augment_args(command).args(S::KEYS.iter().map(arg::<S>));
        // These texts are set after the options, because the options of `Common` set their own.
        command.about(S::ABOUT).long_about(S::LONG).after_help(S::EXAMPLES)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: About> FromArgMatches for RoleArgs<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = S::default();
        for key in S::KEYS {
            let texts: Vec<String> = match key.shape {
                Shape::Flag if !matches.get_flag(key.name) => continue,
                Shape::Flag => Vec::new(),
                _ => match matches.get_many::<String>(key.name) {
                    Some(texts) => texts.cloned().collect(),
                    None => continue,
                },
            };
            // Each value was already checked alone.
            flags
                .set(key.name, &texts)
                .map_err(|e| Error::raw(clap::error::ErrorKind::ValueValidation, e))?;
        }
        Ok(Self { common: Common::from_arg_matches(matches)?, flags })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Makes an option from a setting.
fn arg<S: Settings>(key: &'static Key) -> Arg {
    let arg = Arg::new(key.name).long(key.name).help(help::<S>(key));
    let arg = match key.name {
        "listen" => arg.short('l'),
        "server" => arg.short('s'),
        _ => arg,
    };
    if key.shape == Shape::Flag {
        return arg.action(ArgAction::SetTrue);
    }
    let hint = match key.value {
        "FILE" | "PATH" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        _ => ValueHint::Unknown,
    };
    let action = if key.shape == Shape::Many { ArgAction::Append } else { ArgAction::Set };
    let read = |text: &str| S::default().set(key.name, &[text.to_owned()]).map(|()| text.to_owned());
    arg.value_name(key.value).value_hint(hint).action(action).value_parser(read)
}

/// Writes the help of a setting. Other settings in it are written as options.
fn help<S: Settings>(key: &Key) -> StyledStr {
    let mut text = String::new();
    for (place, part) in key.docs().split('`').enumerate() {
        match place % 2 {
            0 => text.push_str(part),
            _ if !S::KEYS.iter().any(|key| key.name == part) => text.extend(["`", part, "`"]),
            _ => text.extend(["--", part]),
        }
    }
    if key.shape == Shape::Many {
        text.push_str("; may be given several times");
    }
    if let Some(default) = key.default {
        text.push_str(&format!(" [default: {default}]"));
    }
    text.into()
}
