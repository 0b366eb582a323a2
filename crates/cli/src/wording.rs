//! The library's words as the command says them: a setting that a message names is an option here.

/// Settings as the library's messages name them, and what they are on the command line.
const NAMES: &[(&str, &str)] = &[
    ("`Groups::Auto`, `All` or `None`", "auto, all or none"),
    ("`MirrorList::make`", "anabranch mirror-list make"),
    ("`ca_file`", "--cacert"),
    ("`checksum`", "--checksum"),
    ("`class`", "--class"),
    ("`each`", "--each"),
    ("`from_source`", "--from"),
    ("`groups`", "--groups"),
    ("`header`", "--header"),
    ("`key`", "--key"),
    ("`keyring`", "--keyring"),
    ("`http`", "--http"),
    ("`limit`", "--limit"),
    ("`listen`", "--listen"),
    ("`netrc`", "--netrc"),
    ("`overwrite`", "--force"),
    ("`piece_bytes`", "--piece-size"),
    ("`node`", "--node"),
    ("`proxy`", "--proxy"),
    ("`publish`", "--publish"),
    ("`state`", "--state"),
    ("`to_directory`", "--output DIR"),
    ("`to_file`", "--output"),
    ("`user`", "--user"),
    ("`via`", "--via"),
    ("or `read` it in order", "or say -o - for standard output"),
    ("repeat the request", "run the same command again"),
    ("the same request", "the same command"),
];

/// A message of the library for whoever typed a command.
#[must_use]
pub fn with_options(message: &str) -> String {
    NAMES.iter().fold(message.to_owned(), |text, (setting, option)| text.replace(setting, option))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_option_is_one() {
        let help: String = Cli::command().get_subcommands_mut().map(all_help).collect();
        for (_, option) in NAMES.iter().filter(|(_, option)| option.starts_with("--")) {
            let option = option.split(' ').next().unwrap_or_default();
            let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
            assert!(help.split(option).skip(1).any(|rest| !goes_on(rest)), "{option}");
        }
        assert_eq!(
            with_options("give it with `user`, or say `netrc`"),
            "give it with --user, or say --netrc"
        );
    }

    fn all_help(command: &mut clap::Command) -> String {
        let own = command.render_long_help().to_string();
        own + &command.get_subcommands_mut().map(all_help).collect::<String>()
    }
}
