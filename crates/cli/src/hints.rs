//! Translates the library's messages for the command line: a setting that a message names is an option here.

use anabranch::Hint;

/// Returns a message of the library with settings replaced by the names of options.
#[must_use]
pub fn with_options(message: &str) -> String {
    Hint::replace(message, option).into_owned()
}

/// Returns the option that sets `hint`.
const fn option(hint: Hint) -> &'static str {
    match hint {
        Hint::CaFile => "--cacert",
        Hint::Checksum => "--checksum",
        Hint::Class => "--class",
        Hint::Each => "--each",
        Hint::FromSource => "--from",
        Hint::Get => "command",
        Hint::Groups => "--groups",
        Hint::Header => "--header",
        Hint::Http => "--http",
        Hint::Key => "--key",
        Hint::Keyring => "--keyring",
        Hint::Limit => "--limit",
        Hint::Listen => "--listen",
        Hint::MakeMirrorList => "anabranch mirror-list make",
        Hint::Netrc => "--netrc",
        Hint::Node => "--node",
        Hint::Overwrite => "--force",
        Hint::PieceBytes => "--piece-size",
        Hint::Proxy => "--proxy",
        Hint::Publish => "--publish",
        Hint::Read => "-o - for standard output",
        Hint::State => "--state",
        Hint::ToDirectory => "--output DIR",
        Hint::ToFile => "--output",
        Hint::User => "--user",
        Hint::Via => "--via",
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_option_is_one() {
        let help: String = Cli::command().get_subcommands_mut().map(all_help).collect();
        for option in Hint::ALL.iter().map(|hint| option(*hint)).filter(|option| option.starts_with('-')) {
            let option = option.split(' ').next().unwrap_or_default();
            let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
            assert!(help.split(option).skip(1).any(|rest| !goes_on(rest)), "{option}");
        }
        assert_eq!(
            with_options("give it with `user`, or say `netrc`: run the same `Get` again"),
            "give it with --user, or say --netrc: run the same command again"
        );
    }

    fn all_help(command: &mut clap::Command) -> String {
        let own = command.render_long_help().to_string();
        own + &command.get_subcommands_mut().map(all_help).collect::<String>()
    }
}
