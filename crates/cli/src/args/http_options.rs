//! Options for HTTP servers, as users of curl know them.

use std::path::PathBuf;

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

    /// Neither look up nor write down what these URLs had. Without this option: ~/.cache/anabranch/urls.jsonl
    /// keeps for the next time which content a URL had; not of URLs with a query, a name or a password
    #[arg(long)]
    pub no_history: bool,

    /// What the whole file must have, whatever else is known of it
    #[arg(long, value_name = "sha-256=HEX", value_parser = checksum)]
    pub checksum: Option<[u8; 32]>,
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

fn checksum(text: &str) -> Result<[u8; 32], String> {
    let hex = text.strip_prefix("sha-256=").ok_or("expected sha-256= and 64 hexadecimal digits")?;
    anabranch::sha256_from_hex(hex).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(header("X-A: b: c"), Ok(("X-A".into(), "b: c".into())));
        assert_eq!(user("a:b:c"), Ok(("a".into(), "b:c".into())));
        assert!(header("nothing").is_err() && user("nobody").is_err());
        assert_eq!(checksum(&format!("sha-256={}", "Ab".repeat(32))), Ok([0xab; 32]));
        for bad in ["ab", "sha-256=ab", "md5=ab", "sha-256=xy"] {
            assert!(checksum(bad).is_err(), "{bad}");
        }
    }
}
