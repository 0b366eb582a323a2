//! The settings of a cache, read from TOML. docs/cache.md describes every key.
//!
//! ```
//! let text = r#"
//!     directory = "/var/cache/anabranch"
//!     capacity = "50GB"
//!     [[route]]
//!     at = "/pypi"
//!     preset = "pypi"
//!     sources = ["https://pypi.org/simple"]
//! "#;
//! let config = anabranch_cache::config::Config::parse(text)?;
//! assert_eq!(config.capacity_bytes, 50_000_000_000);
//! # Ok::<(), anabranch_cache::config::ConfigError>(())
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use crate::preset_names::Preset;

/// The most bytes of a file of settings.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// The address of a cache whose settings name none.
pub const LISTEN: &str = "127.0.0.1:8470";
/// The fewest bytes that a store may have: some documents must fit.
const CAPACITY_BYTES_MIN: u64 = 1 << 20;
/// The most routes, and the most sources of a route.
const ROUTES_MAX: usize = 256;

/// The index of pypi.org, and the place of its files.
const PYPI: &str = "https://pypi.org/";
const PYPI_FILES: &str = "https://files.pythonhosted.org";

/// The settings of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The address of the HTTP server.
    pub listen: SocketAddr,
    /// The directory of the store.
    pub directory: PathBuf,
    /// The most bytes of the store's files.
    pub capacity_bytes: u64,
    /// The links to use, as `anabranch get --via` takes them; every usable one if there is none.
    pub via: Vec<String>,
    /// A PEM file of certificates that are believed besides the system's.
    pub ca_file: Option<PathBuf>,
    /// How objects are shared with caches of the LAN; `None` if they are not.
    pub neighbours: Option<NeighbourConfig>,
    /// The content-addressed stores in front of which the cache stands, those with the longest path first.
    pub routes: Vec<Route>,
}

/// How objects are shared with caches of the LAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourConfig {
    /// The interfaces to use; all that have a private address if there is none.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// The UDP port at which this cache is asked; mmTP has the next one. The system chooses both if there is
    /// none.
    pub port: Option<u16>,
    /// A file with a secret that all neighbours have; others are not heard.
    pub key_file: Option<PathBuf>,
}

/// One store and its mirrors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The first names of the paths of requests.
    pub at: Vec<String>,
    /// What is known of the store's paths.
    pub preset: Preset,
    /// The URLs of the store: mirrors, each without a slash at its end.
    pub sources: Vec<String>,
    /// The URLs below which an index names its files, which are mirrors of each other, too.
    pub files: Vec<String>,
    /// Whether the credentials of a client go to the sources with its request.
    pub pass_credentials: bool,
}

/// A problem in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", .line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct ConfigError {
    /// The number of the line, counted from 1, if the problem is in one.
    pub line: Option<usize>,
    /// The problem, and what would help, as a clause.
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    listen: Option<String>,
    directory: PathBuf,
    capacity: String,
    #[serde(default)]
    via: Vec<String>,
    ca_file: Option<PathBuf>,
    neighbours: Option<NeighbourConfig>,
    #[serde(default, rename = "route")]
    routes: Vec<toml::Spanned<RawRoute>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    at: String,
    preset: String,
    sources: Vec<String>,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    pass_credentials: bool,
}

impl Config {
    /// Reads settings.
    ///
    /// # Errors
    /// The first problem, with its line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let line_of = |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
        let mut raw: RawConfig = toml::from_str(text).map_err(|e| {
            let what = e.message().trim().replace('\n', "; ");
            ConfigError { line: e.span().map(|span| line_of(span.start)), what }
        })?;
        let wrong = |what: String| ConfigError { line: None, what };
        let listen = raw.listen.as_deref().unwrap_or(LISTEN);
        let listen = listen
            .parse()
            .map_err(|_| wrong(format!("listen: `{listen}` is no ADDRESS:PORT, such as {LISTEN}")))?;
        let capacity_bytes = capacity(&raw.capacity).map_err(wrong)?;
        if raw.routes.is_empty() || raw.routes.len() > ROUTES_MAX {
            return Err(wrong(format!("there must be 1 to {ROUTES_MAX} tables [[route]]")));
        }
        let mut routes = Vec::new();
        for raw in std::mem::take(&mut raw.routes) {
            let line = Some(line_of(raw.span().start));
            let route = Route::of(raw.into_inner()).map_err(|what| ConfigError { line, what })?;
            if routes.iter().any(|known: &Route| known.at == route.at) {
                return Err(ConfigError { line, what: format!("two routes are at {}", route.path()) });
            }
            routes.push(route);
        }
        routes.sort_by_key(|route| std::cmp::Reverse(route.at.len()));
        if let Some(port @ (0 | u16::MAX)) = raw.neighbours.as_ref().and_then(|n| n.port) {
            return Err(wrong(format!("neighbours: port: {port} is none, or has no next one")));
        }
        let RawConfig { directory, via, ca_file, neighbours, .. } = raw;
        Ok(Self { listen, directory, capacity_bytes, via, ca_file, neighbours, routes })
    }

    /// Returns the route of a path and the names after the route's own.
    #[must_use]
    pub fn route<'a>(&self, names: &'a [String]) -> Option<(&Route, &'a [String])> {
        self.routes.iter().find_map(|route| Some((route, names.strip_prefix(&route.at[..])?)))
    }
}

impl Route {
    fn of(raw: RawRoute) -> Result<Self, String> {
        let is_name =
            |name: &&str| !matches!(*name, "" | "." | "..") && !name.contains(['%', '?', '#', '\\']);
        let inside = raw.at.strip_prefix('/').ok_or_else(|| format!("at: `{}` must begin with /", raw.at))?;
        let inside = inside.strip_suffix('/').unwrap_or(inside);
        let at: Vec<&str> = if inside.is_empty() { Vec::new() } else { inside.split('/').collect() };
        if let Some(name) = at.iter().find(|name| !is_name(name)) {
            return Err(format!("at: a path cannot have the name `{name}`"));
        }
        let preset = Preset::by_name(&raw.preset)
            .ok_or_else(|| format!("preset: `{}` is none of {}", raw.preset, Preset::names()))?;
        if raw.sources.is_empty() || raw.sources.len().max(raw.files.len()) > ROUTES_MAX {
            return Err(format!("sources: name 1 to {ROUTES_MAX} URLs"));
        }
        let read = |urls: &[String]| urls.iter().map(|url| base(url)).collect::<Result<Vec<_>, _>>();
        let (sources, mut files) = (read(&raw.sources)?, read(&raw.files)?);
        if !files.is_empty() && preset != Preset::PyPi {
            return Err("files: only the preset pypi has an index that names files elsewhere".to_owned());
        }
        if preset == Preset::PyPi && files.is_empty() {
            files = sources.iter().filter_map(|source| files_of_index(source)).collect();
            files.dedup();
        }
        let origin = |url: &String| Url::parse(url).map(|url| url.origin().ascii_serialization()).ok();
        let mut origins: Vec<_> = sources.iter().chain(&files).map(origin).collect();
        origins.dedup();
        // A name and a password are for one server.
        if raw.pass_credentials && origins.len() > 1 {
            return Err("pass_credentials: all sources and files must be at one server".to_owned());
        }
        let (at, pass_credentials) = (at.into_iter().map(str::to_owned).collect(), raw.pass_credentials);
        Ok(Self { at, preset, sources, files, pass_credentials })
    }

    /// Returns the path of the route, with a slash at its end.
    #[must_use]
    pub fn path(&self) -> String {
        self.at.iter().fold("/".to_owned(), |path, name| format!("{path}{name}/"))
    }
}

/// Checks the URL of a store, and returns it without the slash at its end.
fn base(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|e| format!("`{text}` is no URL: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("`{text}`: only http:// and https:// are fetched"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("`{text}`: the URL of a store has neither ? nor #"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Returns the URL below which an index of Python packages has its files, unless the settings say.
fn files_of_index(source: &str) -> Option<String> {
    if source.starts_with(PYPI) {
        return Some(PYPI_FILES.to_owned());
    }
    Some(Url::parse(source).ok()?.origin().ascii_serialization())
}

/// Reads an amount of bytes: a number with `k`, `M`, `G` or `T` (1,000) or `Ki`, `Mi`, `Gi` or `Ti`
/// (1,024), and perhaps `B`.
fn capacity(text: &str) -> Result<u64, String> {
    let wrong = || format!("capacity: `{text}` is no amount of bytes, such as 50GB");
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim();
    let one = match unit.strip_suffix('B').unwrap_or(unit) {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1_024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        _ => return Err(wrong()),
    };
    let bytes = (number * one) as u64;
    if bytes < CAPACITY_BYTES_MIN {
        return Err(format!("capacity: `{text}` is less than {CAPACITY_BYTES_MIN} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "directory = \"/c\"\ncapacity = \"1.5 GiB\"\n[[route]]\nat = \"/debian/\"\n\
                        preset = \"apt\"\n\
                        sources = [\"http://a.example/debian/\", \"https://b.example\"]\n";

    #[test]
    fn settings_are_read() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!(config.capacity_bytes, 3 << 29);
        assert_eq!(config.listen.to_string(), LISTEN);
        assert_eq!(config.routes[0].sources, ["http://a.example/debian", "https://b.example"]);
        assert_eq!(config.routes[0].path(), "/debian/");
    }

    #[test]
    fn the_longest_path_wins() {
        let text = format!(
            "{GOOD}[[route]]\nat = \"/\"\npreset = \"oci\"\nsources = [\"https://r.example\"]\n\
             [[route]]\nat = \"/debian/security\"\npreset = \"apt\"\nsources = [\"https://s.example\"]\n"
        );
        let config = Config::parse(&text).unwrap();
        let route = |path: &str| {
            let names: Vec<String> = path.split('/').map(str::to_owned).collect();
            config.route(&names).map(|(route, rest)| (route.path(), rest.join("/"))).unwrap()
        };
        assert_eq!(route("debian/security/x"), ("/debian/security/".into(), "x".into()));
        assert_eq!(route("debian/x"), ("/debian/".into(), "x".into()));
        assert_eq!(route("debianx"), ("/".into(), "debianx".into()));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (from, to, said) in [
            ("[[route]]", "[[rout]]", "line 3: unknown field `rout`"),
            ("\"apt\"", "\"atp\"", "line 3: preset: `atp` is none of files, pypi,"),
            ("\"/debian/\"", "\"debian\"", "line 3: at: `debian` must begin with /"),
            ("\"/debian/\"", "\"/a/../b\"", "line 3: at: a path cannot have the name `..`"),
            ("http://a", "ftp://a", "line 3: `ftp://a.example/debian/`: only http"),
            ("a.example/debian/", "a.example/?x", "neither ? nor #"),
            (
                "preset = \"apt\"",
                "preset = \"apt\"\nfiles = [\"http://f.example\"]",
                "files: only the preset pypi",
            ),
            (
                "preset = \"apt\"",
                "preset = \"apt\"\npass_credentials = true",
                "line 3: pass_credentials: all sources and files must be at one server",
            ),
            ("1.5 GiB", "lots", "capacity: `lots` is no amount"),
            ("1.5 GiB", "1.5 kB", "less than"),
            ("[[route]]", "[neighbours]\nport = 65535\n[[route]]", "neighbours: port: 65535"),
            ("[[route]]", "[neighbours]\nports = 1\n[[route]]", "line 4: unknown field `ports`"),
            ("directory", "listen = \"8470\"\ndirectory", "listen: `8470` is no ADDRESS:PORT"),
        ] {
            let error = Config::parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let twice = format!("{GOOD}{}", &GOOD[GOOD.find("[[").unwrap()..]);
        assert_eq!(Config::parse(&twice).unwrap_err().to_string(), "line 7: two routes are at /debian/");
    }
}
