//! Options for HTTP servers, as users of curl know them.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

/// Options of `get` for HTTP mirrors.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "HTTP mirrors")]
pub struct Http {
    /// A header field to send with each request; may be given several times. Authorization and Cookie go
    /// where --user goes
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,

    /// Name and password for the servers named on the command line or on standard input; not for those that
    /// they redirect to, nor for those that only a Metalink (be it a file of your own) or another server
    /// names: --netrc is for these
    #[arg(short, long, value_name = "NAME:PASSWORD", value_parser = user)]
    pub user: Option<(String, String)>,

    /// Take names and passwords from this file, or from ~/.netrc; its default entry goes where --user goes
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "~/.netrc")]
    #[arg(require_equals = true, value_hint = ValueHint::FilePath)]
    pub netrc: Option<PathBuf>,

    /// A proxy: http://HOST:PORT, socks5://HOST:PORT, socks5h://HOST:PORT, or "" for none. Without this
    /// option: as the environment says (http_proxy, https_proxy, all_proxy, no_proxy)
    #[arg(short = 'x', long, value_name = "URL", value_hint = ValueHint::Url)]
    pub proxy: Option<String>,

    /// Believe the certificates in this file too
    #[arg(long, value_name = "FILE.pem", value_hint = ValueHint::FilePath)]
    pub cacert: Option<PathBuf>,

    /// Believe any certificate: anybody may then be the server. Hashes are checked all the same
    #[arg(short = 'k', long)]
    pub insecure: bool,

    /// What the whole file must have, whatever else is known of it: a SHA-256 or SHA-512 in hexadecimal
    /// digits, bare or as in sha256:HEX, sha256=HEX, sha-256=HEX; or a file such as SHA256SUMS, of which the
    /// line with the file's name counts
    #[arg(long, value_name = "HEX|sha-256=HEX|FILE", value_parser = checksum)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub checksum: Option<KnownHash>,
}

/// What `--checksum` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownHash {
    /// The hash itself.
    Is(anabranch::Checksum),
    /// A list that has it.
    In(PathBuf),
}

impl Http {
    /// The file of `--netrc`, with `~` as the user's home.
    pub(crate) fn netrc(&self) -> Option<PathBuf> {
        let path = self.netrc.as_ref()?;
        match (path.strip_prefix("~"), std::env::var_os("HOME")) {
            (Ok(rest), Some(home)) => Some(PathBuf::from(home).join(rest)),
            _ => Some(path.clone()),
        }
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn user(text: &str) -> Result<(String, String), String> {
    let (name, password) = text.split_once(':').ok_or("expected NAME:PASSWORD")?;
    Ok((name.to_owned(), password.to_owned()))
}

fn checksum(text: &str) -> Result<KnownHash, String> {
    match text.parse() {
        Ok(checksum) => Ok(KnownHash::Is(checksum)),
        Err(_) if Path::new(text).is_file() => Ok(KnownHash::In(text.into())),
        Err(e) => Err(format!("{e}; nor is there a file of that name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(header("X-A: b: c"), Ok(("X-A".into(), "b: c".into())));
        assert_eq!(user("a:b:c"), Ok(("a".into(), "b:c".into())));
        assert!(header("nothing").is_err() && user("nobody").is_err());
        let sha256 = Ok(KnownHash::Is(anabranch::Checksum::sha256([0xab; 32])));
        assert_eq!(checksum(&format!("sha-256={}", "Ab".repeat(32))), sha256);
        assert_eq!(checksum(file!()).is_ok(), Path::new(file!()).is_file());
        for bad in ["ab", "sha-256=ab", "md5=ab", "sha-256=xy"] {
            assert!(checksum(bad).is_err(), "{bad}");
        }
    }
}
