//! Reads `.netrc` files, which give names and passwords for machines. The format is that of ftp(1) and curl:
//! words, `#` comments at the start of a line, and words in double quotes with `\` escapes.
//!
//! The existing crates for this format refuse a file with a word that they do not know, or lose the order of
//! its entries. curl skips such a word and takes the first entry that fits; so does this module.

/// The most bytes of a file that are read.
pub(super) const NETRC_BYTES_MAX: u64 = 1 << 20;

/// One entry of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// The machine's name. `None` is the entry `default`, for every machine that has no entry before it.
    machine: Option<String>,
    login: Option<String>,
    password: Option<String>,
}

/// The contents of a `.netrc` file.
#[derive(Clone, Debug, Default)]
pub(super) struct Netrc {
    entries: Vec<Entry>,
}

impl Netrc {
    /// Parses the text of a file. Unknown words are skipped, as every reader of the format does.
    pub(super) fn parse(text: &str) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim_start().starts_with('#') {
                continue;
            }
            let mut words = words(line).into_iter();
            while let Some(word) = words.next() {
                // A value may stand on the next line.
                let mut value = || loop {
                    if let Some(word) = words.next() {
                        return Some(word);
                    }
                    words = self::words(lines.next()?).into_iter();
                };
                match word.as_str() {
                    "machine" => {
                        // An entry without a name would count as `default`.
                        let Some(name) = value() else { break };
                        entries.push(Entry { machine: Some(name), ..Entry::default() });
                    }
                    "default" => entries.push(Entry::default()),
                    "login" | "password" | "account" => {
                        let value = value();
                        match (entries.last_mut(), word.as_str()) {
                            (Some(entry), "login") => entry.login = value,
                            (Some(entry), "password") => entry.password = value,
                            _ => {}
                        }
                    }
                    "macdef" => {
                        // A macro's text ends with an empty line.
                        while lines.next().is_some_and(|line| !line.trim().is_empty()) {}
                        break;
                    }
                    _ => {}
                }
            }
        }
        Self { entries }
    }

    /// Returns the name and password for `host`. If `login` is given, only an entry with this name counts. An
    /// entry `default` counts only if `or_default`.
    pub(super) fn get(&self, host: &str, login: Option<&str>, or_default: bool) -> Option<(String, String)> {
        let named = |entry: &&Entry| match &entry.machine {
            Some(machine) => machine.eq_ignore_ascii_case(host),
            None => or_default,
        };
        let is_of_login = |entry: &&Entry| login.is_none() || entry.login.as_deref() == login;
        let entry = self.entries.iter().filter(named).find(is_of_login)?;
        Some((entry.login.clone()?, entry.password.clone().unwrap_or_default()))
    }
}

/// Splits a line into words.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.chars().peekable();
    while let Some(&c) = rest.peek() {
        if c.is_whitespace() {
            rest.next();
            continue;
        }
        let mut word = String::new();
        if c == '"' {
            rest.next();
            while let Some(c) = rest.next() {
                match c {
                    '"' => break,
                    '\\' => match rest.next() {
                        Some('n') => word.push('\n'),
                        Some('r') => word.push('\r'),
                        Some('t') => word.push('\t'),
                        Some(other) => word.push(other),
                        None => {}
                    },
                    c => word.push(c),
                }
            }
        } else {
            while let Some(c) = rest.next_if(|c| !c.is_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_shape() {
        let text = "# mine\nmachine a.example login ann password \"p w\\\"\"\nmachine B.example\n  login\n\
                    bob\npassword #1 account x\nmacdef init\nmachine evil login e\n\n\
                    machine c.example password only\n\
                    default login anon password guest machine d.example login late";
        let netrc = Netrc::parse(text);
        let both = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(netrc.get("a.example", None, false), both("ann", "p w\""));
        assert_eq!(netrc.get("b.EXAMPLE", None, true), both("bob", "#1"));
        assert_eq!(netrc.get("c.example", None, true), None);
        assert_eq!(netrc.get("evil", None, false), None);
        assert_eq!(netrc.get("x.example", None, true), both("anon", "guest"));
        assert_eq!(netrc.get("x.example", None, false), None);
        assert_eq!(
            netrc.get("d.example", None, true),
            both("anon", "guest"),
            "what stands after default is not seen"
        );
        assert_eq!(netrc.get("d.example", None, false), both("late", ""));
    }

    #[test]
    fn of_several_entries_of_a_machine_the_login_selects() {
        let netrc = Netrc::parse("machine h login ann password a\nmachine h login bob password b\n");
        let password = |login| netrc.get("h", login, true).map(|(_, password)| password);
        assert_eq!([password(None), password(Some("ann"))], [Some("a".to_owned()), Some("a".to_owned())]);
        assert_eq!([password(Some("bob")), password(Some("eve"))], [Some("b".to_owned()), None]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "(?s).*", tokens in "((machine|login|macdef|\"|\\\\|x|\n) ?)*") {
            let _ = Netrc::parse(&text).get("h", None, true);
            let _ = Netrc::parse(&tokens).get("x", None, true);
        }

        #[test]
        fn what_is_written_is_read(
            host in "[a-z]{1,9}",
            login in "[a-z0-9@.-]{1,9}",
            password in "[!#-\\[\\]-~]{0,12}",
            quoted: bool,
        ) {
            let password = if quoted || password.is_empty() { format!("\"{password}\"") } else { password };
            let text = format!("machine {host}\n login {login}\tpassword {password}\n");
            let read = Netrc::parse(&text).get(&host, None, false);
            let password = password.trim_matches('"').to_owned();
            proptest::prop_assert_eq!(read, Some((login, password)));
        }
    }
}
