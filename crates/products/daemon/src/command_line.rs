//! The command line and the input file of `aria2c`, as scripts and programs such as apt-fast and yt-dlp write
//! them: texts in, downloads out.

use crate::job::Options;
use crate::options::{self, Kind, Scope};

/// What a command line asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The downloads that it names: the URIs of each file.
    pub files: Vec<Vec<String>>,
    /// The file that has more downloads; `-` is standard input.
    pub input_file: Option<String>,
    /// The options of all downloads and of the run.
    pub options: Options,
    /// The directory of downloads.
    pub dir: Option<String>,
    /// Whether certificates are not checked.
    pub is_insecure: bool,
    /// Whether nothing is printed but errors.
    pub is_quiet: bool,
    /// Whether only the help is wanted.
    pub wants_help: bool,
    /// Whether only the version is wanted.
    pub wants_version: bool,
}

/// The short options, the long ones that they stand for, and whether they have a value.
const SHORT: &[(char, &str, bool)] = &[
    ('a', "file-allocation", true),
    ('c', "continue", false),
    ('d', "dir", true),
    ('h', "help", false),
    ('i', "input-file", true),
    ('j', "max-concurrent-downloads", true),
    ('k', "min-split-size", true),
    ('l', "log", true),
    ('m', "max-tries", true),
    ('n', "no-netrc", false),
    ('o', "out", true),
    ('p', "ftp-pasv", false),
    ('P', "parameterized-uri", false),
    ('q', "quiet", false),
    ('R', "remote-time", false),
    ('s', "split", true),
    ('t', "timeout", true),
    ('u', "max-upload-limit", true),
    ('U', "user-agent", true),
    ('v', "version", false),
    ('V', "check-integrity", false),
    ('x', "max-connection-per-server", true),
    ('Z', "force-sequential", false),
];

/// Options of the command line alone that have no effect here, and whether they have a value.
const IDLE: &[(&str, bool)] = &[
    ("conf-path", true),
    ("console-log-level", true),
    ("deferred-input", false),
    ("download-result", true),
    ("enable-color", false),
    ("human-readable", false),
    ("netrc-path", true),
    ("no-conf", false),
    ("show-console-readout", false),
    ("stderr", false),
    ("summary-interval", true),
    ("truncate-console-readout", false),
];

impl CommandLine {
    /// Reads the words after `aria2c`.
    ///
    /// # Errors
    /// If an option is unknown, has no value, or would change what is fetched; a sentence.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut new = Self::default();
        let (mut words, mut uris, mut is_sequential) = (words.into_iter(), Vec::new(), false);
        while let Some(word) = words.next() {
            if word == "--" {
                uris.extend(words);
                break;
            }
            let Some((name, value)) = split(&word)? else {
                uris.push(word);
                continue;
            };
            let value = match value {
                Some(value) => value,
                None if !has_value(&name)? => "true".to_owned(),
                None => words.next().ok_or_else(|| format!("the option --{name} wants a value"))?,
            };
            is_sequential |= name == "force-sequential" && value == "true";
            new.set(name, value)?;
        }
        new.files = match (is_sequential, uris.is_empty()) {
            (_, true) => Vec::new(),
            (true, _) => uris.into_iter().map(|uri| vec![uri]).collect(),
            (false, _) => vec![uris],
        };
        Ok(new)
    }

    fn set(&mut self, name: String, value: String) -> Result<(), String> {
        match name.as_str() {
            "input-file" => self.input_file = Some(value),
            "dir" => self.dir = Some(value),
            "help" => self.wants_help = true,
            "version" => self.wants_version = true,
            "quiet" => self.is_quiet = value == "true",
            "check-certificate" => self.is_insecure = value == "false",
            "force-sequential" => {}
            "log" if value == "-" || value.is_empty() => {}
            "enable-rpc" if value == "true" => {
                return Err("--enable-rpc is `anabranch daemon` itself".to_owned());
            }
            _ if IDLE.iter().any(|(idle, _)| *idle == name) => {}
            _ => add(&mut self.options, &name, &value)?,
        }
        Ok(())
    }
}

/// Adds an option after a check. Header fields add to each other.
fn add(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    let rule = options::named(name).ok_or_else(|| format!("there is no option --{name} here"))?;
    let value = rule.check(value).map_err(|e| e.to_string())?;
    match options.get_mut(name).filter(|_| matches!(rule.kind, Kind::Lines)) {
        Some(lines) => *lines = format!("{lines}\n{value}"),
        None => drop(options.insert(name.to_owned(), value)),
    }
    Ok(())
}

/// Splits an option into its name and the value that the same word has; `None` for a word that is no option.
fn split(word: &str) -> Result<Option<(String, Option<String>)>, String> {
    if let Some(long) = word.strip_prefix("--") {
        return Ok(Some(match long.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (long.to_owned(), None),
        }));
    }
    let Some(short) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else { return Ok(None) };
    let mut letters = short.chars();
    let letter = letters.next().unwrap_or_default();
    let known = SHORT.iter().find(|(known, ..)| *known == letter);
    let (_, name, takes_value) = known.ok_or_else(|| format!("there is no option -{letter} here"))?;
    let rest = letters.as_str();
    let value = match (rest, takes_value) {
        ("", _) => None,
        (rest, true) => Some(rest.trim_start_matches('=').to_owned()),
        (rest, false) => Some(
            rest.strip_prefix('=').ok_or_else(|| format!("write -{letter} and -{rest} apart"))?.to_owned(),
        ),
    };
    Ok(Some(((*name).to_owned(), value)))
}

/// Whether an option must have a value.
fn has_value(name: &str) -> Result<bool, String> {
    if let Some((_, has_value)) = IDLE.iter().find(|(idle, _)| *idle == name) {
        return Ok(*has_value);
    }
    match name {
        "help" | "version" | "quiet" | "force-sequential" | "enable-rpc" => Ok(false),
        "input-file" => Ok(true),
        _ => match options::named(name) {
            Some(rule) => Ok(!matches!(rule.kind, Kind::Bool)),
            None => Err(format!("there is no option --{name} here")),
        },
    }
}

/// Reads an input file: a line with the URIs of a file, separated by tabs, and then lines with its options
/// that begin with white space. `common` are the options of all.
///
/// # Errors
/// If a line is wrong; a sentence with its number.
pub fn read_input(text: &str, common: &Options) -> Result<Vec<(Vec<String>, Options)>, String> {
    let mut files: Vec<(Vec<String>, Options)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.trim();
        if content.is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.starts_with([' ', '\t']) {
            let uris = content.split('\t').map(str::trim).filter(|uri| !uri.is_empty());
            files.push((uris.map(str::to_owned).collect(), common.clone()));
            continue;
        }
        let wrong = |why: &str| format!("line {number} of the input file: {why}");
        let (_, options) = files.last_mut().ok_or_else(|| wrong("an option before any URI"))?;
        let (name, value) = content.split_once('=').ok_or_else(|| wrong("no option: NAME=VALUE"))?;
        if options::named(name).is_some_and(|rule| rule.scope == Scope::Daemon) {
            return Err(wrong(&format!("{name} is no option of one download")));
        }
        // The file's option replaces the option of the command line.
        if options::named(name).is_some_and(|rule| matches!(rule.kind, Kind::Lines))
            && options.get(name) == common.get(name)
        {
            options.remove(name);
        }
        add(options, name, value).map_err(|why| wrong(&why))?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(line: &str) -> Result<CommandLine, String> {
        CommandLine::read(line.split_whitespace().map(str::to_owned))
    }

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_lines_of_programs() {
        let apt_fast = read(
            "--no-conf -c -j 20 -x 10 -s 10 -i /var/cache/apt/apt-fast/apt-fast.list --min-split-size=1M \
             --stream-piece-selector=default --connect-timeout=600 --timeout=600 -m0 --header=Accept:*/*",
        );
        let apt_fast = apt_fast.expect("a line");
        assert_eq!(apt_fast.input_file.as_deref(), Some("/var/cache/apt/apt-fast/apt-fast.list"));
        assert_eq!((&*apt_fast.options["timeout"], &*apt_fast.options["max-tries"]), ("600", "0"));
        assert_eq!(
            (&*apt_fast.options["continue"], &*apt_fast.options["min-split-size"]),
            ("true", "1048576")
        );
        let yt_dlp = read(
            "-c --no-conf --stderr --console-log-level=warn --summary-interval=0 --download-result=hide \
             --http-accept-gzip=true --file-allocation=none -x16 -j16 -s16 --header A:1 --header B:2 \
             --check-certificate=false --remote-time=true --dir /tmp/ --out f.mp4 --auto-file-renaming=false \
             -- https://a.example/v",
        );
        let yt_dlp = yt_dlp.expect("a line");
        assert_eq!(yt_dlp.files, [["https://a.example/v"]]);
        assert_eq!((&*yt_dlp.options["out"], &*yt_dlp.options["header"]), ("f.mp4", "A:1\nB:2"));
        assert!(yt_dlp.is_insecure && yt_dlp.dir.as_deref() == Some("/tmp/"));
        let two = read("-x2 http://a.example/f http://b.example/f").expect("a line");
        assert_eq!(two.files, [["http://a.example/f", "http://b.example/f"]]);
        assert!(read("-v").expect("a line").wants_version && read("--help=#all").expect("a line").wants_help);
        assert_eq!(read("-Z http://a.example/f http://b.example/g").expect("a line").files.len(), 2);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (line, why) in [
            ("--no-such http://a.example/f", "no option --no-such"),
            ("-y", "no option -y"),
            ("-qc", "apart"),
            ("-o", "wants a value"),
            ("--split=0", "--split"),
            ("--enable-rpc", "anabranch daemon"),
            ("--load-cookies=c.txt", "--load-cookies"),
            ("--dry-run http://a.example/f", "--dry-run"),
            ("--on-download-complete=/bin/x", "run programs"),
            ("-l /tmp/log", "--log"),
        ] {
            let said = read(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
    }

    #[test]
    fn an_input_file_has_files_with_options() {
        let common = options(&[("continue", "true"), ("header", "A: 1")]);
        let text = "# apt\nhttp://a.example/x.deb\thttp://b.example/x.deb\n out=x.deb\n header=B: 2\n \
                    header=C: 3\n\n\
                    http://a.example/y.deb\n";
        let files = read_input(text, &common).expect("a file");
        assert_eq!(files[0].0, ["http://a.example/x.deb", "http://b.example/x.deb"]);
        let wanted = options(&[("continue", "true"), ("header", "B: 2\nC: 3"), ("out", "x.deb")]);
        assert_eq!((&files[0].1, &files[1].1), (&wanted, &common));
        for (text, why) in [
            (" out=x\n", "line 1"),
            ("http://a.example/x\n out\n", "line 2"),
            ("http://a.example/x\n max-overall-download-limit=1\n", "of one download"),
            ("http://a.example/x\n nothing=1\n", "no option --nothing"),
        ] {
            assert!(read_input(text, &common).expect_err(text).contains(why), "{text}");
        }
    }

    fn any_words() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("\\PC{0,12}|-[a-zA-Z]{1,3}|--[a-z-]{1,12}(=.{0,5})?", 0..8)
    }

    proptest! {
        #[test]
        fn no_words_panic(words in any_words(), text in "\\PC{0,80}") {
            let _ = CommandLine::read(words);
            let _ = read_input(&text.replace('n', "\n"), &Options::new());
        }
    }
}
