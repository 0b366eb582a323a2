//! Describes errors of a command line in one line.

use clap::Error;
use clap::error::{ContextKind, ContextValue};

use crate::exit::Failure;

/// The options whose values are not repeated in messages, because other users may see messages. A password
/// before a host is not repeated either.
const SECRETS: [&str; 3] = ["--header", "--user", "--pair "];

/// The message for a source that looks like letters of curl's options: `-fsSL`.
pub const CURL: &str = "these are options of curl";

/// The options of curl, wget and aria2 that people give to `get`, and the hints for them.
const ELSEWHERE: [(&[&str], &str); 16] = [
    (&["--split", "--max-connection-per-server"], "how many connections there are need not be said"),
    (&["--max-download-limit", "--max-overall-download-limit"], "it is --limit"),
    (&["--no-check-certificate"], "it is --insecure"),
    (&["--multiple-interface"], "each link is a --via of its own; without any all are used"),
    (&["--check-certificate"], "certificates are checked; --insecure takes any"),
    (&["-s"], "-q is curl's -s; how many connections there are (aria2's -s) need not be said"),
    (&["-c", "--continue", "--resume"], "what has come is always gone on with"),
    (&["-A", "--user-agent"], "a field of the request is -H 'User-Agent: NAME'"),
    (&["-b", "--cookie"], "a field of the request is -H 'Cookie: NAME=VALUE'"),
    (&["--connect-timeout"], "--timeout is for how long nothing may come, a connection too"),
    (&["--fail"], "an HTTP error is never taken for the file"),
    (&["-d", "-P", "--dir"], "a directory to put it into is -o DIR/"),
    (&["-e", "--referer"], "a field of the request is -H 'Referer: URL'"),
    (&["-j"], "how many files come at once need not be said"),
    (&["--retry"], "it is tried again until nothing has come for --timeout"),
    (&["-m", "--max-time"], "--timeout is for how long nothing may come"),
];

/// Writes clap's message as one line: the error, a similar option, and where to read on. Leaves out the tip
/// to write `-- -X`, which is for file names that begin with a dash; users rarely mean such names.
#[must_use]
pub fn failure(error: &Error) -> Failure {
    let text = error.render().to_string();
    let (problem, rest) = match text.split_once("\n\nUsage: ") {
        Some((problem, usage)) => (problem, Some(usage)),
        None => (text.split("\n\nFor more information").next().unwrap_or_default(), None),
    };
    let mut message = String::new();
    for line in problem.lines().map(str::trim) {
        let line = line.trim_start_matches("error: ");
        let (before, line) = match line.strip_prefix("tip: ") {
            Some(tip) if tip.starts_with("to pass ") => continue,
            Some(tip) => ("; ", tip),
            None => (" ", line),
        };
        if !line.is_empty() {
            message += if message.is_empty() { "" } else { before };
            message += line;
        }
    }
    if let (Some(ContextValue::String(arg)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
        && (SECRETS.iter().any(|secret| arg.contains(secret)) || value.contains('@'))
        && !value.is_empty()
    {
        message = message.replace(value.as_str(), "…");
    }
    let is_get = rest.is_some_and(|usage| usage.split_whitespace().nth(1) == Some("get"));
    let is_unknown =
        |option: &&&str| is_get && message.starts_with(&format!("unexpected argument '{option}'"));
    let known = ELSEWHERE.iter().find_map(|(options, hint)| Some((options.iter().find(is_unknown)?, hint)));
    if let Some((option, hint)) = known {
        // The option that clap finds similar is unrelated.
        message = format!("unexpected argument '{option}' found; {hint}");
    } else if message.contains("for '--from <") && (message.contains("://") || message.contains(CURL)) {
        message += "; mirrors stand alone, without --from, and curl's -f is not needed";
    }
    if let Some(usage) = rest {
        let is_name = |word: &&str| !word.starts_with(['[', '<', '-']) && *word == word.to_lowercase();
        let command: Vec<&str> = usage.split_whitespace().take_while(is_name).collect();
        message += &format!(" (see {} --help)", command.join(" "));
    }
    Failure::usage(message)
}

/// Returns whether invalid arguments ask for JSON. Then the error is also printed as a summary.
#[must_use]
pub fn wants_json(args: impl IntoIterator<Item = std::ffi::OsString>) -> bool {
    args.into_iter().take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::Cli;

    #[test]
    fn options_of_others_are_answered_whatever_the_program_is_called() {
        let named = Cli::command().name("mine").bin_name("mine");
        let error = named.try_get_matches_from(["mine", "get", "-c", "x"]).expect_err("no option");
        assert!(failure(&error).message.contains("is always gone on with"), "{}", failure(&error).message);
    }

    fn message(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
        failure(&error).message
    }

    #[test]
    fn one_line_says_what_is_wrong() {
        let said = message("anabranch get http://h/f --qq");
        assert_eq!(said, "unexpected argument '--qq' found (see anabranch get --help)");
        let said = message("anabranch get http://h/f -Z");
        assert_eq!(said, "unexpected argument '-Z' found (see anabranch get --help)");
        let said = message("anabranch get http://h/f -H hunter2");
        assert_eq!(said, "invalid value '…' for '--header <NAME: VALUE|@FILE>': expected NAME: VALUE");
        let said = message("anabranch get -fsSL http://h/f");
        assert!(said.contains("these are options of curl; mirrors stand alone, without --from"), "{said}");
        let said = message("anabranch get http://h/f -s 16");
        assert!(said.contains("aria2's -s) need not be said (see anabranch get --help)"), "{said}");
        let said = message("anabranch get http://h/f --retry 3");
        let wanted = "unexpected argument '--retry' found; it is tried again until nothing has come for \
                      --timeout (see anabranch get --help)";
        assert_eq!(said, wanted);
        assert!(Cli::try_parse_from("anabranch get http://h/f --limit-rate 1M".split(' ')).is_ok(), "curl's");
        let said = message("anabranch get http://h/f --user-agent me");
        assert!(
            said.starts_with("unexpected argument '--user-agent' found; a field of the request"),
            "{said}"
        );
        let said = message("anabranch get https://h/f --no-check-certificate");
        assert!(
            said.starts_with("unexpected argument '--no-check-certificate' found; it is --insecure"),
            "{said}"
        );
        let said = message("anabranch get -i list http://h/f");
        assert!(said.contains("cannot be used with"), "{said}");
        let said = message("anabranch get -f http://h/f");
        assert!(
            said.ends_with("; mirrors stand alone, without --from, and curl's -f is not needed"),
            "{said}"
        );
        let said = message("anabranch get http://h/f --forse");
        let wanted = "unexpected argument '--forse' found; a similar argument exists: '--force'";
        assert!(said.starts_with(wanted), "{said}");
        let said = message("anabranch get http://h/f --cc lai");
        let wanted = "invalid value 'lai' for '--cc <NAME>'";
        assert!(said.contains(wanted) && said.contains("; a similar value exists: "), "{said}");
        let said = message("anabranch mirror-list make film.mkv");
        let wanted = "the following required arguments were not provided: <URL>... (see anabranch \
                      mirror-list make --help)";
        assert_eq!(said, wanted);
        for line in ["get x --timeout=-1", "get x --timeout -1", "get x --timeout 0", "get x --timeout 1.5"] {
            let said = message(&format!("anabranch {line}"));
            assert!(said.contains("for '--timeout <SECONDS>': expected whole seconds, 1 to 86400"), "{said}");
        }
        for line in ["fetch x", "get x --limit fast", "get x --timeout 0", "soak -x"] {
            let said = message(&format!("anabranch {line}"));
            assert!(!said.contains('\n') && !said.contains("to pass") && !said.contains("error:"), "{said}");
        }
    }

    #[test]
    fn json_is_wanted_before_two_dashes() {
        let wants = |line: &str| wants_json(line.split(' ').map(Into::into));
        assert!(wants("anabranch get --bogus --json") && !wants("anabranch get --bogus -- --json"));
    }
}
