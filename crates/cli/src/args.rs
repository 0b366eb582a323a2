//! Declares the command line: all commands, and the options of commands that have no separate file for them.
//! An option is declared once; help, manual pages and completions are made from the declaration.

mod http_options;

pub use anabranch::get::Groups;
pub use anabranch::network::Name;
pub use anabranch::{HostPort, PORT};
pub use http_options::{Http, KnownHash};

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anabranch_algo::Rate;
use anabranch_algo::control::{ALGORITHMS, Algorithm, SLOW_STARTS};
pub use anabranch_net::quantity::rate;
use anabranch_net::{Egress, via};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, CommandFactory as _, Parser, Subcommand, ValueHint};

use crate::exit;
use crate::network_options::{Class, Network};
use crate::programs::PROGRAMS;
use crate::usage;

/// The time without any answer after which `get` gives up, in seconds.
pub const TIMEOUT_S: u64 = anabranch::get::TIMEOUT.as_secs();

/// anabranch downloads one file from many sources over all your network links at once, verifies every byte,
/// and leaves other traffic its fair share.
#[derive(Debug, Parser)]
#[command(
    name = "anabranch",
    version,
    long_about = "anabranch downloads one file from many sources over all your network links at once, \
        verifies every byte, and leaves other traffic its fair share.\n\n\
        A source runs `anabranch serve` and prints a URI for what it offers. A receiver gives that URI to \
        `anabranch get`, names as many sources as it likes, and takes parts from all of them at once. The \
        URI holds a hash of the content, so that no source has to be trusted.",
    after_help = "Try it without a network: anabranch demo",
    after_long_help = exit::help(),
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    propagate_version = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands that were built with this program.
#[non_exhaustive]
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Debug, Subcommand)]
pub enum Command {
    Serve(Serve),
    Get(Box<Get>),
    MirrorList(crate::mirror_list::MirrorList),
    Demo(Demo),
    #[cfg(feature = "cache")]
    Cache(crate::cache_command::Cache),
    #[cfg(feature = "daemon")]
    Daemon(crate::daemon_command::Daemon),
    #[cfg(feature = "lab")]
    Lab(crate::lab_command::args::Lab),
    #[cfg(feature = "lab")]
    Soak(crate::soak::Soak),
    #[cfg(feature = "minicache")]
    Minicache(crate::minicache_command::args::Minicache),
    #[cfg(feature = "uplinks")]
    Kernel(crate::kernel_command::args::Kernel),
    #[cfg(feature = "proxy")]
    Proxy(crate::proxy_command::args::Proxy),
    #[cfg(feature = "tcp")]
    Tcp(crate::tcp_command::args::Tcp),
    #[cfg(feature = "network")]
    Net(crate::net_command::args::Net),
    #[cfg(feature = "network")]
    Forward(crate::member_command::args::Forward),
    #[cfg(feature = "network")]
    Rendezvous(crate::member_command::args::Rendezvous),
    #[cfg(feature = "network")]
    Topology(crate::member_command::args::Topology),
    #[cfg(feature = "op")]
    Op(crate::op_command::args::Op),
    #[cfg(feature = "trace")]
    Trace(crate::trace_command::Trace),
    #[cfg(feature = "uplinks-daemon")]
    Uplinks(crate::uplinks_command::Uplinks),
    #[cfg(feature = "vm")]
    Vm(crate::vm_command::args::Vm),
    Man(Man),
    Completions(Completions),
}

/// Returns the definition of all commands. Commands that are not built into this program have only a name and
/// a summary.
#[must_use]
pub fn command() -> clap::Command {
    let others = PROGRAMS.iter().flat_map(|program| program.commands);
    others.fold(Cli::command(), |all, (name, about)| match all.find_subcommand(name) {
        Some(_) => all,
        None => all.subcommand(clap::Command::new(*name).about(*about)),
    })
}

/// Offer files and directories to whoever knows their URI
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Offer files and directories to whoever knows their URI.\n\n\
        Hashes each PATH (the hashes are kept for the next start), prints its URI on standard output (with \
        --http after it its URL), and answers requests until Ctrl-C. A directory has a URI of its own, and \
        so has each file in it: --list-files prints them too. Requests name content by its hash, never by a \
        path: what was not hashed at the start cannot be asked for. Symbolic links are followed only as long \
        as they stay inside the PATH they were found in.",
    after_help = "Examples:\n  \
        anabranch serve film.mkv\n  \
        anabranch serve --listen 192.0.2.7:26227 --limit 20M ~/public\n  \
        anabranch serve --http 192.0.2.7:8080 ~/public\n  \
        anabranch serve film.mkv --domain net.toml --publish films/2026 --key films.key\n  \
        anabranch serve --json data/ | jq -r 'select(.event == \"offer\") | .uri'"
)]
pub struct Serve {
    /// Files and directories to offer
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,

    /// Address to listen on; may be given several times. Port 0 takes a free one, and `ADDR` alone means port
    /// 26227. Without this option: port 26227 of every address, IPv4 and IPv6
    #[arg(short, long, value_name = "ADDR:PORT", value_parser = listen_address)]
    pub listen: Vec<SocketAddr>,

    /// Offer the same over HTTP too, to browsers, curl and other receivers; may be given several times. Port
    /// 0 takes a free one, and `ADDR` alone means port 26227. Anybody who reaches it sees the list of files
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    pub http: Vec<SocketAddr>,

    /// Send no faster than this, all receivers together: bytes a second (500k, 20M, 1.5Gi) or bits a second
    /// (100Mbit)
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub limit: Option<Rate>,

    /// Offer PATH by this name in a publish/subscribe network too; with --domain and --key. Receivers need to
    /// know neither URI nor address: anabranch get SCOPE/LABEL --domain FILE
    #[arg(long, value_name = "SCOPE/LABEL", requires = "key", help_heading = "Network options")]
    #[arg(value_parser = clap::value_parser!(Name))]
    pub publish: Option<Name>,

    /// The file that has the secret key of the scope (see anabranch net key)
    #[arg(long, value_name = "FILE", requires = "publish", help_heading = "Network options")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub network: Network,

    /// Hash everything again, and keep no hashes for the next start
    #[arg(long)]
    pub no_cache: bool,

    /// Print the URIs of the files in directories too, before those of the PATHs
    #[arg(long)]
    pub list_files: bool,

    /// Report on standard output as JSON, one object a line: all offers, then counters every second
    #[arg(long)]
    pub json: bool,

    /// No progress and no counters; URIs and warnings only
    #[arg(short, long)]
    pub quiet: bool,
}

const GET_EXAMPLES: &str = "Examples:\n  \
    anabranch get 'URI'\n  \
    anabranch get 'URI' --from 192.0.2.7:26227 --from mirror.example.net -o film.mkv\n  \
    anabranch get 'URI' --via wlan0 --via eth0 --disjoint\n  \
    anabranch get 'URI' --limit 5M --via eth0 --via wwan0:limit=500k\n  \
    anabranch get 'URI' --via wlan0 --via wwan0:backup,cap=20GB/month\n  \
    anabranch get https://a.example/film.mkv https://b.example/film.mkv\n  \
    anabranch get https://a.example/f.tar https://b.example/f.tar -o - | tar x\n  \
    anabranch get --each https://a.example/f.iso https://a.example/g.iso -o isos/ --checksum SHA256SUMS\n  \
    anabranch get -i list.txt -o isos/\n  \
    anabranch get films/2026 --domain net.toml\n  \
    anabranch get album.meta4";

/// Fetch one file or directory from all sources that have it
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Fetch one file or directory from all sources that have it.\n\n\
        Sources come from the URI and from --from. Each source is asked from each local address (see \
        --via); every such pair is a path with its own congestion window, and each takes as much of the \
        file as it can carry. Every 16 KiB are verified before they are written; a source that sends wrong \
        bytes is banned and named. What has arrived is kept in NAME.part with a journal beside it: the \
        same command resumes after Ctrl-C, a crash or a reboot. NAME itself appears at the end, whole, and \
        verified if you know a hash of it: by a URI, a Metalink or --checksum.\n\n\
        All that is named is of one file, so several URLs are mirrors of it. If they have different names \
        and turn out to be different files, nothing is fetched: --each fetches every URL as a file of its \
        own; -o NAME or a hash says that they are one.\n\n\
        Options are called as curl calls them where they do the same. Its -L and -O are taken and change \
        nothing: redirects are followed, and a file is called as its URL. With `-C -` a file that another \
        program has begun at the target's name is gone on with, if hashes of blocks or pieces (a leaf list, \
        a Metalink) prove what is there.",
    after_help = GET_EXAMPLES,
    after_long_help = format!(
        "{GET_EXAMPLES}\n\nThe exit status tells scripts what happened: see `anabranch --help`."
    )
)]
pub struct Get {
    /// What to fetch: a URI as `anabranch serve` printed it (in quotes, for it contains & and ?), URLs of one
    /// and the same file, or with --each of several (HOST/PATH alone is http://HOST/PATH, as with curl), a
    /// Metalink (a file, also a pipe as of <(…) or /dev/stdin, or a URL that ends in .meta4 or .metalink; one
    /// of several files is a directory), or - for a list of these on standard input, one a line. With
    /// --domain: a name in that network (SCOPE/LABEL), or a URI whose content is looked up there
    #[arg(required_unless_present = "input_file", value_name = "URI|URL|METALINK")]
    #[arg(value_hint = ValueHint::Url)]
    pub what: Vec<String>,

    /// Every URL is a file of its own, as for curl and wget, not all of one: they come one after the other,
    /// each by the name in its URL, into the current directory or the DIR/ of --output. Each has its own line
    /// of a --checksum list. If one file fails, the others are still fetched, and the exit status tells why
    /// the first one failed
    #[arg(long)]
    pub each: bool,

    /// A source, in addition to those that the URI names; may be given several times. Without a port: 26227
    #[arg(short, long, value_name = "HOST:PORT", value_parser = source)]
    pub from: Vec<HostPort>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub links: Links,

    /// Where to put it: a name for the file, or a directory to put it in, which is made if PATH ends in a
    /// slash. A directory that is fetched becomes PATH, or PATH/NAME if PATH ends in a slash. - is standard
    /// output: one file, in order, while it comes, from bounded memory; nothing is kept, so it cannot resume,
    /// and only exit status 0 says that all of it came, and is right if there is a hash to tell. Without
    /// this option: the name in the URI or of the Metalink, in the current directory
    #[arg(short, long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub output: Option<PathBuf>,

    /// Congestion control of paths to sources that speak mmTP; over HTTP, where servers have their own, only
    /// ledbat-pp has an effect. bbr-coupled is far faster where packets are lost by chance, as over radio,
    /// but takes more than its share beside other downloads. A slow start of your choice goes with any but
    /// bbr: NAME+standard, NAME+hystart (leaves when the round-trip time grows) or NAME+friendly (a group's
    /// paths start as one TCP)
    #[arg(long, value_name = "NAME")]
    #[arg(default_value = ALGORITHMS[0].name, value_parser = Controllers)]
    pub cc: String,

    /// Yield to everything else that uses the links, such as calls and other downloads, and keep queues short
    /// for them: the same as --cc ledbat-pp. It begins gently, so what takes others a few seconds takes it
    /// several times as long. Beside a server that sends with BBR, which keeps queues short itself, it takes
    /// a share
    #[arg(long, conflicts_with = "cc")]
    pub background: bool,

    /// Which paths may share a bottleneck, and so take together what one TCP would
    ///
    /// auto: those that seem to. Paths that leave this host by one uplink begin together, those over
    /// different uplinks apart: the uplink is nearly always the bottleneck. They are joined when their delays
    /// rise and fall together, and parted when delays and losses show for some seconds that they pass
    /// different bottlenecks. Connections to mirrors are held back only while there is a queue. With a tunnel
    /// (VPN) among the interfaces all begin together.
    ///
    /// all: every one. Slower than need be where it is not so.
    ///
    /// none: no two (you know: two providers, say), each grows on its own. Faster where that is true, unfair
    /// to others where it is not.
    ///
    /// FILE: as its lines say, SOURCE GROUP or SOURCE VIA GROUP: a source as for --from, an interface or
    /// address as for --via, and any word; * is any source, or any way. The first line that fits a path
    /// decides, paths with the same word are coupled, those that no line fits are one more group. # begins a
    /// comment.
    #[arg(long, value_name = "auto|all|none|FILE", default_value = "auto", value_parser = groups)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub groups: Groups,

    /// The same as --groups none
    #[arg(long, conflicts_with = "groups")]
    pub disjoint: bool,

    /// Give up when no source has answered for so long; what has arrived is kept
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_S)]
    #[arg(value_parser = timeout, allow_negative_numbers = true)]
    pub timeout: u64,

    /// Overwrite the target if it exists, and a part of other content that is in its place
    #[arg(long)]
    pub force: bool,

    /// Report on standard output as JSON, one object a line: progress every second, then, however it ends, a
    /// summary with the exit status (exit) and the reason (error)
    #[arg(long)]
    pub json: bool,

    /// No progress and no summary; only errors, and what shows that something wrong came or may have come
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub network: Network,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub class: Class,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub http: Http,
}

/// See it work: a file from three sources on this machine, one of which is killed and comes back
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "See it work: a file from three sources on this machine, one of which is killed and comes \
        back.\n\n\
        Starts three `anabranch serve`, each with a limit of its own, on loopback: two speak mmTP over UDP, \
        one is taken by HTTP. One `get` takes the file from all of them. The fastest is killed (SIGKILL) at \
        20 % and started again at 60 %. The commands are shown as they are run. At the end a table compares \
        it with what the limits would allow, and everything is removed.",
    after_help = "Examples:\n  anabranch demo\n  anabranch demo --keep\n  anabranch demo --seed 7 --size 64"
)]
pub struct Demo {
    /// Seed of the file: the same seed, the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Size of the file, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_024))]
    pub size: u64,

    /// Keep the directory with the file and its copy, and say where it is
    #[arg(long)]
    pub keep: bool,

    /// Report on standard output as JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// Print a manual page, or write all of them into a directory
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  anabranch man | man -l -\n  anabranch man get | man -l -\n  \
        anabranch man ~/.local/share/man/man1")]
pub struct Man {
    /// Write one page a command into this directory instead of printing the first (a new one with a slash:
    /// ./man); or the command whose page is printed (get, proxy-client)
    #[arg(value_name = "DIR|COMMAND", value_hint = ValueHint::DirPath)]
    pub place: Option<PathBuf>,
}

/// Print a completion script for a shell
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  \
    anabranch completions bash > ~/.local/share/bash-completion/completions/anabranch")]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

fn timeout(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.ok_or_else(|| "expected whole seconds, 1 to 86400 (a day)".to_owned())
}

fn groups(text: &str) -> Result<Groups, String> {
    Ok(match text {
        "" => return Err("expected auto, all, none or the name of a file".into()),
        "auto" => Groups::Auto,
        "all" => Groups::All,
        "none" => Groups::None,
        file => Groups::File(file.into()),
    })
}

/// The options about links and rates.
#[derive(Args, Clone, Debug)]
pub struct Links {
    #[arg(long, visible_alias = "interface", value_name = via::VALUE, value_parser = get_via)]
    #[arg(help = format!("{}. A promise: if it cannot be used, the command fails. Without this option: every \
        usable address", via::HELP))]
    #[expect(missing_docs, reason = "the help is one text for every command")]
    pub via: Vec<via::Via>,

    /// How the links named with --via work together: `aggregate`, all at once, but for the conditions of
    /// each; `backup`, the others only while the first is down or silent; `sequential`, one at a time, in
    /// the order in which they are named
    #[arg(long, value_name = "MODE", default_value = "aggregate", value_parser = mode, requires = "via")]
    pub mode: anabranch::Mode,

    /// Take no more than this, over all paths together: bytes a second (500k, 20M, 1.5Gi) or bits a second
    /// (100Mbit)
    #[arg(long, alias = "limit-rate", value_name = "RATE", value_parser = rate)]
    pub limit: Option<Rate>,
}

fn get_via(text: &str) -> Result<via::Via, String> {
    let via: via::Via = text.parse().map_err(|e: via::ViaError| e.to_string())?;
    let several = if via.name.contains(',') { "; several are a --via each" } else { "" };
    Egress::parse(&via.name).map_err(|e| format!("{e}{several}"))?;
    Ok(via)
}

fn mode(text: &str) -> Result<anabranch::Mode, String> {
    let found = anabranch::Mode::NAMES.iter().find(|(name, _)| *name == text);
    found.map(|(_, mode)| *mode).ok_or_else(|| "expected aggregate, backup or sequential".to_owned())
}

/// Parses a source. Refuses curl's bundle -fsSL, which would otherwise name one.
fn source(text: &str) -> Result<HostPort, String> {
    let is_bundle = text.contains(['S', 'L']) && text.bytes().all(|letter| b"sSLkOJv".contains(&letter));
    if is_bundle { Err(usage::CURL.to_owned()) } else { text.parse() }
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let bare = text.trim_matches(['[', ']']).parse::<IpAddr>();
    bare.map(|ip| SocketAddr::new(ip, PORT)).map_err(|_| {
        "expected ADDR:PORT, such as 0.0.0.0:26227 or [::]:26227; names are not looked up here".into()
    })
}

/// Parses a name of [`ALGORITHMS`], alone or followed by a plus sign and a slow start of [`SLOW_STARTS`].
#[derive(Clone)]
struct Controllers;

impl TypedValueParser for Controllers {
    type Value = String;

    fn parse_ref(
        &self,
        cmd: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let name = value.to_str().filter(|name| Algorithm::by_name(name).is_some());
        if let Some(name) = name {
            return Ok(name.to_owned());
        }
        // The error message, with the most similar valid name, is about the wrong half.
        let (rule, start) = value.to_str().and_then(|name| name.split_once('+')).unzip();
        let entry = ALGORITHMS.iter().find(|a| Some(a.name) == rule);
        match (entry.map(|a| a.slow_start.is_some()), start) {
            (Some(true), Some(start)) => PossibleValuesParser::new(SLOW_STARTS.iter().map(|s| s.name))
                .parse_ref(cmd, arg, start.as_ref()),
            // A controller with its own start is invalid with another start, so the message is about the
            // whole value.
            (known, _) => PossibleValuesParser::new(ALGORITHMS.iter().map(|a| a.name)).parse_ref(
                cmd,
                arg,
                rule.filter(|_| known.is_none()).map_or(value, OsStr::new),
            ),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(ALGORITHMS.iter().map(|a| PossibleValue::new(a.name).help(a.title))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn the_help_begins_with_the_first_sentence_of_the_readme() {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let readme = include_str!("../../../README.md");
        let sentence = words(readme.split("\n\n").nth(1).expect("a paragraph"));
        for help in [command().render_help(), command().render_long_help()] {
            let help = words(&help.to_string());
            assert!(help.starts_with(sentence.trim_end_matches('.')), "{help}");
        }
    }

    #[test]
    fn controllers() {
        let cc = |name: &str| match Cli::try_parse_from(["anabranch", "get", "x", "--cc", name])
            .map(|cli| cli.command)
        {
            Ok(Command::Get(get)) => Ok(get.cc),
            Ok(_) => unreachable!(),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(cc("lia"), Ok("lia".into()));
        assert_eq!(cc("lia+hystart"), Ok("lia+hystart".into()));
        assert_eq!(cc("bbr-coupled"), Ok("bbr-coupled".into()));
        let error = cc("bbr+hystart").expect_err("it has a start of its own");
        assert!(error.contains("'bbr+hystart'"), "{error}");
        for (wrong, hint) in
            [("lai", "lia"), ("lia+hystar", "hystart"), ("renno+hystart", "reno"), ("", "nmcc")]
        {
            let error = cc(wrong).unwrap_err();
            assert!(error.contains(hint), "{wrong}: {error}");
        }
    }

    #[test]
    fn rates() {
        let bytes = |text| rate(text).map(|r| r.as_bytes());
        assert_eq!(bytes("20M"), Ok(20_000_000));
        assert_eq!(bytes("100Mbit"), Ok(12_500_000));
        assert_eq!(bytes("100Mbit/s"), Ok(12_500_000));
        assert_eq!(bytes("1.5Gi"), Ok(1_610_612_736));
        assert_eq!(bytes("500kB"), Ok(500_000));
        for bad in ["", "M", "0", "-1", "1X", "1e99G", "NaN", "inf", "1.2.3", "20 apples"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn usage() {
        let uri = anabranch_mmtp::uri::Uri::new(anabranch_mmtp::ContentId::of(b"x")).to_string();
        let parse = |line: &str| Cli::try_parse_from(line.replace("URI", &uri).split(' '));
        assert!(
            parse("anabranch serve a b -l 127.0.0.1:0 -l [::1]:9 --limit 1M --json --no-cache -q").is_ok()
        );
        assert!(parse("anabranch serve a --http 127.0.0.1:0 --http ::1").is_ok());
        assert!(
            parse("anabranch get URI --from a:1 --from b --via lo -o x --cc reno --disjoint --force").is_ok()
        );
        let cli = parse("anabranch get URI --limit 5M --via lo:limit=8Mbit --via 127.0.0.7").expect("sound");
        let Command::Get(get) = cli.command else { unreachable!() };
        let limits = [get.links.limit, get.links.via[0].limit, get.links.via[1].limit]
            .map(|limit| limit.map(Rate::as_bytes));
        assert_eq!(limits, [Some(5_000_000), Some(1_000_000), None]);
        assert_eq!(get.links.via[0].name, "lo");
        let cli = parse("anabranch get URI --via lo:cap=20GB/month --via 127.0.0.7:backup --mode sequential");
        let Command::Get(get) = cli.expect("sound").command else { unreachable!() };
        assert_eq!((get.links.via[1].is_backup, get.links.mode), (true, anabranch::Mode::Sequential));
        for (text, wanted) in [
            ("auto", Groups::Auto),
            ("all", Groups::All),
            ("none", Groups::None),
            ("./auto", Groups::File("./auto".into())),
        ] {
            let cli = parse(&format!("anabranch get URI --groups {text}")).expect("sound");
            assert!(matches!(cli.command, Command::Get(get) if get.groups == wanted), "{text}");
        }
        assert!(parse("anabranch get URI --via lo,limit=8Mbit").is_ok(), "as it was written before");
        assert!(parse("anabranch get -LO -C - http://h/f -O http://i/f --interface lo").is_ok(), "as curl");
        let cli = parse("anabranch get URI").expect("sound");
        assert!(matches!(cli.command, Command::Get(get) if get.groups == Groups::default()), "one default");
        for bad in [
            "anabranch",
            "anabranch get",
            "anabranch get URI --cc vegas",
            "anabranch get URI --timeout 0",
            "anabranch get URI --groups=",
            "anabranch get URI --groups all --disjoint",
            "anabranch get URI --via no-such-device",
            "anabranch get URI --via lo:limit=",
            "anabranch get URI --via lo:limit=10",
            "anabranch get URI --via lo:price=2",
            "anabranch get URI --via lo --mode redundant",
            "anabranch get URI --mode backup",
            "anabranch get URI --limit 0",
            "anabranch get URI -x 2",
            "anabranch get URI -C 100",
            "anabranch get URI --background --cc lia",
            "anabranch serve",
            "anabranch serve x --limit 0",
            "anabranch serve x --listen example.org:1",
            "anabranch serve x --http example.org:1",
            "anabranch demo --size 0",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
