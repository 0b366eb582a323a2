//! Reads which paths may share a bottleneck, as the user knows it.
//!
//! A file of groups has lines `SOURCE [VIA] GROUP`, with fields separated by white space. Each line puts the
//! paths that it matches into a group.
//! - `SOURCE` is a source as [`Get::from_source`](super::Get::from_source) takes it (a host or an address,
//!   with or without a port), or `*` for any.
//! - `VIA` is a local end as [`Get::via`](super::Get::via) takes it (an interface, an address, or both), or
//!   `*` for any.
//! - `GROUP` is any word; paths with the same word are coupled.
//!
//! The first line that matches a path decides. Paths that no line matches are one more group. Empty lines,
//! and text from a `#` at the beginning of a word on, are skipped.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anabranch_net::Egress;

use crate::host_port::HostPort;
use crate::{Error, Result};

/// The largest file of groups, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Says which paths may share a bottleneck, and so together take only the share of one TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// Groups the paths that seem to share a bottleneck. At first, paths that leave this host by one uplink
    /// are one group, because an uplink is nearly always the bottleneck behind it. Later, paths are joined if
    /// their delays rise and fall together. They are parted if their delays and losses show, for some
    /// seconds, that they pass different bottlenecks. Connections to mirrors are bounded only while there is
    /// a queue. The uplink of a tunnel is not known: its paths begin in one group with all others.
    #[default]
    Auto,
    /// Puts all paths into one group. This is slower than need be if they do not share a bottleneck.
    All,
    /// Puts each path into a group of its own.
    None,
    /// Groups paths by the lines of this file. Each line names a source (as [`Get::from_source`] takes it),
    /// an interface or address, and the word of a group; `*` is any source, or any interface. The first line
    /// that matches a path decides, and paths with the same word are coupled. `#` begins a comment.
    ///
    /// [`Get::from_source`]: crate::Get::from_source
    File(PathBuf),
}

/// The groups that paths are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupPolicy {
    /// All paths begin in one group; detection parts them by their uplinks and by their delays and losses.
    Auto,
    /// All paths are one group.
    All,
    /// Each path is a group of its own.
    None,
    /// The lines of a file say the group of each path.
    File(Vec<Line>),
}

/// One line of a file of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    number: usize,
    /// The source as [`HostPort`] prints it; `None` means any source.
    source: Option<String>,
    via: Option<String>,
    /// The number of the group, from 1.
    group: u32,
}

impl GroupPolicy {
    /// Reads the groups, from the file if one is named.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the file cannot be read, or if a line makes no sense;
    /// the error says its number.
    pub(super) fn new(groups: &Groups) -> Result<Self> {
        Ok(match groups {
            Groups::Auto => Self::Auto,
            Groups::All => Self::All,
            Groups::None => Self::None,
            Groups::File(path) => Self::File(read(path)?),
        })
    }

    /// Returns the group of path number `index`, which leads over `via` to the source `source` at address
    /// `peer`.
    pub(super) fn of(&self, index: usize, source: &str, peer: SocketAddr, via: &Egress) -> u32 {
        match self {
            Self::All | Self::Auto => 0,
            Self::None => index as u32,
            Self::File(lines) => lines
                .iter()
                .find(|line| line.names(source, peer) && line.leads(via))
                .map_or(0, |line| line.group),
        }
    }

    /// Returns the numbers of lines whose source is none of `sources` and of `mirrors`. A mirror's addresses
    /// are known only when it is connected: if there are mirrors, a line that names an address may mean one
    /// of them.
    pub(super) fn strangers(&self, sources: &[(String, Vec<SocketAddr>)], mirrors: &[String]) -> Vec<usize> {
        let Self::File(lines) = self else { return Vec::new() };
        let known = |line: &Line| {
            let Some(wanted) = &line.source else { return true };
            let is_source = |(name, peers): &(String, Vec<SocketAddr>)| {
                line.is_named(name) || peers.iter().any(|peer| line.names(name, *peer))
            };
            let may_be_mirror = !mirrors.is_empty() && wanted.parse::<SocketAddr>().is_ok();
            may_be_mirror || sources.iter().any(is_source) || mirrors.iter().any(|name| line.is_named(name))
        };
        lines.iter().filter(|line| !known(line)).map(|line| line.number).collect()
    }
}

impl Line {
    fn names(&self, source: &str, peer: SocketAddr) -> bool {
        self.source.as_ref().is_none_or(|name| *name == peer.to_string()) || self.is_named(source)
    }

    /// Returns whether the line names this source. Both a mirror and a line may lack the port.
    fn is_named(&self, source: &str) -> bool {
        let name = source.parse::<HostPort>().map_or_else(|_| source.to_owned(), |name| name.to_string());
        self.source.as_ref() == Some(&name)
    }

    fn leads(&self, via: &Egress) -> bool {
        let Some(text) = &self.via else { return true };
        let address = |ip: &std::net::IpAddr| text.parse() == Ok(*ip);
        *text == via.to_string() || via.device() == Some(text) || via.address().as_ref().is_some_and(address)
    }
}

fn read(path: &Path) -> Result<Vec<Line>> {
    let failed = |why: String| Error::usage(format!("`groups` {}: {why}", path.display())).at(path);
    let mut text = String::new();
    let file = File::open(path).map_err(|e| failed(format!("{e} (or say auto, all or none)")).because(e))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|e| failed(e.to_string()).because(e))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed("larger than 1 MiB: is it the right file?".into()));
    }
    parse(&text).map_err(|(number, why)| {
        Error::usage(format!("`groups` {}:{number}: {why}", path.display())).at(path)
    })
}

/// Returns the lines of a file, or the number of the first line that makes no sense, and why.
fn parse(text: &str) -> Result<Vec<Line>, (usize, String)> {
    let mut names: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        let (source, via, name) = match words[..] {
            [] => continue,
            [source, name] => (source, "*", name),
            [source, via, name] => (source, via, name),
            _ => return Err((number, "expected SOURCE [VIA] GROUP".into())),
        };
        let source = match source {
            "*" => None,
            text => Some(text.parse::<HostPort>().map_err(|e| (number, e))?.to_string()),
        };
        let known = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        let via = (via != "*").then(|| via.to_owned());
        lines.push(Line { number, source, via, group: known as u32 + 1 });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_file() {
        let text = "# two providers\n\n192.0.2.1 lo dsl  # at home\nmirror.example.net:9 lo cable\n\
                    * 127.0.0.1 dsl\n[2001:db8::1]:5 other\n";
        let given = GroupPolicy::File(parse(text).expect("sound"));
        let lo = Egress::parse("lo").expect("every host has it");
        let address = Egress::parse("127.0.0.1").expect("every host has it");
        let of = |source: &str, at: &str, via: &Egress| given.of(7, source, peer(at), via);
        assert_eq!(of("192.0.2.1:26227", "192.0.2.1:26227", &lo), 1);
        assert_eq!(of("192.0.2.1:26228", "192.0.2.1:26228", &lo), 0, "another port is another source");
        assert_eq!(of("example.org:26227", "192.0.2.1:26227", &lo), 1, "by its address");
        assert_eq!(of("mirror.example.net:9", "192.0.2.9:9", &lo), 2);
        assert_eq!(of("mirror.example.net:9", "192.0.2.9:9", &address), 1, "the first line that fits");
        assert_eq!(of("[2001:db8::1]:5", "[2001:db8::1]:5", &lo), 3);
        assert_eq!(of("192.0.2.8:1", "192.0.2.8:1", &Egress::any()), 0);
        let sources = [("192.0.2.1:26227".to_owned(), vec![peer("192.0.2.1:26227")])];
        assert_eq!(given.strangers(&sources, &[]), [4, 6]);
        // Lines that name mirrors.
        assert_eq!(of("mirror.example.net:9", "192.0.2.7:443", &lo), 2);
        let given =
            GroupPolicy::File(parse("* lo a\nh.example b\nh.example:80 c\n192.0.2.1:80 d\n").expect("sound"));
        assert_eq!(given.of(7, "h.example", peer("192.0.2.9:443"), &address), 2, "without a port");
        assert_eq!(given.strangers(&[], &["h.example".to_owned()]), [3]);
        assert_eq!(given.strangers(&[], &["h.example:80".to_owned()]), [2]);
    }

    #[test]
    fn lines_that_make_no_sense_are_named() {
        for (text, number) in
            [("a:1 g\nb:1\n", 2), ("\n\na b c d", 3), ("a:1 g\n:5 g", 2), ("host:0 g", 1), ("a:1 # g", 1)]
        {
            assert_eq!(parse(text).expect_err("nonsense").0, number, "{text}");
        }
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn the_words() {
        let at = peer("192.0.2.1:1");
        let given = |groups: Groups| GroupPolicy::new(&groups).expect("no file");
        let two = |given: &GroupPolicy| [4, 5].map(|i| given.of(i, "a:1", at, &Egress::any()));
        assert_eq!(two(&given(Groups::All)), [0, 0]);
        assert_eq!(two(&given(Groups::Auto)), [0, 0], "the rest is for the detector");
        assert_eq!(two(&given(Groups::None)), [4, 5]);
        let error = GroupPolicy::new(&Groups::File("/no/such/file".into())).expect_err("no file");
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
