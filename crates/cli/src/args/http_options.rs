//! Declares the options for HTTP servers, with the names that users of curl know.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueHint};
use console::Term;

use crate::exit::{Failure, Outcome};

/// Options of `get` for HTTP mirrors.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "HTTP mirrors")]
pub struct Http {
    /// A header field to send; may be given several times. It goes where --user goes, for it may be a secret.
    /// @FILE takes a field from each line of a file, which other users of this machine do not see, as they
    /// see command lines
    #[arg(short = 'H', long, value_name = "NAME: VALUE|@FILE", value_parser = header_fields)]
    pub header: Vec<HeaderFields>,

    /// Name and password for the servers of the URLs on the command line or on standard input; not for those
    /// that they redirect to, nor for those that only a URI, a Metalink (be it a file of your own) or another
    /// server names. Of a name alone the password is asked for on the terminal
    #[arg(short, long, value_name = "NAME[:PASSWORD]", value_parser = user)]
    pub user: Option<(String, Option<String>)>,

    /// Take names and passwords from this file, or from ~/.netrc. They go where --user goes; those of a
    /// machine go by https to that machine too, whoever named it
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "~/.netrc")]
    #[arg(require_equals = true, value_hint = ValueHint::FilePath)]
    pub netrc: Option<PathBuf>,

    /// A proxy: http://HOST:PORT, socks5://HOST:PORT, socks5h://HOST:PORT, or "" for none. Without this
    /// option: as the environment says (http_proxy, https_proxy, all_proxy, no_proxy)
    #[arg(short = 'x', long, value_name = "URL", value_hint = ValueHint::Url, value_parser = proxy)]
    pub proxy: Option<String>,

    /// Believe the certificates in this file too
    #[arg(long, value_name = "FILE.pem", value_hint = ValueHint::FilePath)]
    pub cacert: Option<PathBuf>,

    /// Believe any certificate: anybody may then be the server. Hashes are checked all the same
    #[arg(short = 'k', long)]
    pub insecure: bool,

    /// Neither look up nor write down what these URLs had. Without this option: ~/.cache/anabranch/urls.jsonl
    /// keeps for the next time which content a URL had; not of URLs with a query, a name or a password
    #[arg(long)]
    pub no_history: bool,

    /// What the whole file must have, whatever else is known of it: a SHA-256, SHA-384 or SHA-512 in
    /// hexadecimal digits, bare or as in sha256:HEX, sha256=HEX, sha-256=HEX; or a list such as SHA256SUMS, a
    /// file, a pipe or a URL, of which the line with the file's name counts
    #[arg(long, value_name = "HEX|sha-256=HEX|FILE|URL", value_parser = checksum)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub checksum: Option<KnownHash>,

    /// Fetch every file of this list, as for wget and aria2: a line has the URL of a file, or several URLs
    /// with blanks or tabs between them, which are mirrors of it. Lines below it, behind blanks, may have
    /// aria2's out=NAME and checksum=sha-256=HEX. # begins a comment; - is standard input. As with
    /// --each, the files come one after the other, each by the name in its first URL if it has no other
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "what")]
    pub input_file: Option<PathBuf>,

    /// Print on standard output, when the file has come, the URI by which others get just these bytes
    #[arg(long, conflicts_with_all = ["json", "each", "input_file"])]
    pub print_uri: bool,

    /// OpenPGP certificates, as gpg --export writes them: the file must be signed by a key of theirs.
    /// Signatures are looked for in the Metalink, where servers say, and beside the file (.asc, .sig). Needs
    /// the program sqv or gpgv
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub keyring: Option<PathBuf>,

    /// As curl has it; it goes without saying
    #[arg(short = 'L', long, hide = true, action = ArgAction::Count)]
    pub location: u8,

    /// As curl has it; it goes without saying
    #[arg(short = 'O', long, hide = true, action = ArgAction::Count)]
    pub remote_name: u8,

    /// As curl has it, for a file that another program has begun; only - can be meant
    #[arg(short = 'C', long, hide = true, allow_hyphen_values = true, value_parser = continue_at)]
    pub continue_at: Option<String>,
}

/// Holds the value of `--checksum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownHash {
    /// The hash itself.
    Is(anabranch::Checksum),
    /// A file that lists the hash.
    In(PathBuf),
    /// The URL of a list that has the hash.
    At(String),
}

impl Http {
    /// Returns the path of `--netrc`, with `~` replaced by the user's home.
    pub(crate) fn netrc(&self) -> Option<PathBuf> {
        let path = self.netrc.as_ref()?;
        match (path.strip_prefix("~"), std::env::var_os("HOME")) {
            (Ok(rest), Some(home)) => Some(PathBuf::from(home).join(rest)),
            _ => Some(path.clone()),
        }
    }

    /// Returns the name and the password of `--user`. Asks on the terminal for a password that is not given.
    ///
    /// # Errors
    /// Wrong usage, if there is no terminal to ask on.
    pub(crate) fn user(&self) -> Outcome<Option<(String, String)>> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        let password = password.clone().map_or_else(|| ask_for_password(name), Ok)?;
        Ok(Some((name.clone(), password)))
    }
}

fn ask_for_password(name: &str) -> Outcome<String> {
    let terminal = Term::stderr();
    let ask = || {
        terminal.write_str(&format!("password of {name}: "))?;
        terminal.read_secure_line()
    };
    let answer = if terminal.is_term() { ask().ok() } else { None };
    answer.ok_or_else(|| {
        Failure::usage(format!(
            "there is no terminal to ask for the password of {name}: give it with --user {name}:PASSWORD, or \
             put it into ~/.netrc and say --netrc"
        ))
    })
}

/// The header fields of one argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderFields(pub Vec<(String, String)>);

/// Reads a header field, or those in a file.
fn header_fields(text: &str) -> Result<HeaderFields, String> {
    let Some(path) = text.strip_prefix('@') else { return Ok(HeaderFields(vec![header(text)?])) };
    let fields = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let lines = fields.lines().filter(|line| !line.trim().is_empty());
    lines.map(header).collect::<Result<_, _>>().map(HeaderFields).map_err(|e| format!("{path}: {e}"))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn user(text: &str) -> Result<(String, Option<String>), String> {
    Ok(match text.split_once(':') {
        Some((name, password)) => (name.to_owned(), Some(password.to_owned())),
        None if text.is_empty() => return Err("expected NAME:PASSWORD, or a NAME alone".to_owned()),
        None => (text.to_owned(), None),
    })
}

fn proxy(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let why = "this is the proxy, as with curl; the number of connections that aria2 means by it need \
                   not be said: every source is asked over every path at once";
        return Err(why.to_owned());
    }
    Ok(text.to_owned())
}

fn continue_at(text: &str) -> Result<String, String> {
    match text {
        "-" => Ok(text.to_owned()),
        _ => Err("it goes on where it stopped by itself, so only -C - can be meant".to_owned()),
    }
}

fn checksum(text: &str) -> Result<KnownHash, String> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if matches!(scheme.as_deref(), Some("http" | "https")) {
        return Ok(KnownHash::At(text.to_owned()));
    }
    match text.parse() {
        Ok(checksum) => Ok(KnownHash::Is(checksum)),
        // The path may also be a pipe, such as the path that a shell gives for <(…).
        Err(_) if Path::new(text).exists() && !Path::new(text).is_dir() => Ok(KnownHash::In(text.into())),
        Err(e) => Err(match is_weak(text) {
            true => format!(
                "{e}; MD5 and SHA-1 prove nothing: whoever wants to makes two files with the same one"
            ),
            false => format!("{e}; nor is there a file of that name"),
        }),
    }
}

/// Returns whether a text has the form of an MD5 or a SHA-1 hash.
fn is_weak(text: &str) -> bool {
    let (kind, hex) = text.split_once([':', '=']).unwrap_or(("", text));
    let kind = kind.to_ascii_lowercase();
    let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex && matches!(hex.len(), 32 | 40) && matches!(kind.as_str(), "" | "md5" | "sha1" | "sha-1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(header("X-A: b: c"), Ok(("X-A".into(), "b: c".into())));
        assert_eq!(user("a:b:c"), Ok(("a".into(), Some("b:c".into()))));
        assert_eq!(user("a:"), Ok(("a".into(), Some(String::new()))));
        assert_eq!(user("nobody"), Ok(("nobody".into(), None)), "to be asked for");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "X-A: 1\n\nX-B: 2\n").expect("written");
        let fields = [("X-A", "1"), ("X-B", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let argument = format!("@{}", file.path().display());
        assert_eq!(header_fields(&argument), Ok(HeaderFields(fields.to_vec())));
        assert!(header_fields("@/nowhere/at/all").is_err() && header_fields("nothing").is_err());
        assert!(header("nothing").is_err() && user("").is_err());
        let sha256 = Ok(KnownHash::Is(anabranch::Checksum::sha256([0xab; 32])));
        assert_eq!(checksum(&format!("sha-256={}", "Ab".repeat(32))), sha256);
        let url = "HTTPS://a.example/SHA256SUMS";
        assert_eq!(checksum(url), Ok(KnownHash::At(url.into())));
        assert_eq!(checksum(file!()).is_ok(), Path::new(file!()).is_file());
        for bad in ["ab", "sha-256=ab", "md5=ab", "sha-256=xy"] {
            assert!(checksum(bad).is_err(), "{bad}");
        }
        for weak in [format!("md5:{}", "a".repeat(32)), "b".repeat(40), format!("SHA-1={}", "c".repeat(40))] {
            assert!(checksum(&weak).is_err_and(|why| why.contains("prove nothing")), "{weak}");
        }
    }
}
