//! The options of `anabranch net`.

use anabranch_topology::paths::PATHS_MAX;
use anabranch_topology::plan::Policy;
use clap::{Args, Subcommand, ValueEnum, ValueHint};

#[cfg(target_os = "linux")]
use super::domain_args::{Down, Exec, Hold, Kill, Log, Start, Status, Up};
use super::domain_args::{Key, Keys, New};
use crate::network_options::Network;

/// Networks as graphs, and whole domains on this machine
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Networks as graphs, and whole domains on this machine.\n\n\
        show, paths: a network is one of the 15 of the Internet Topology Zoo that are built in, or a file: \
        GML or GraphML as the Topology Zoo has them, or our own form, one statement a line (`net show NAME \
        --text` prints it). show draws domains too.\n\n\
        new, up, exec, ...: a domain is a TOML file that says which nodes forward, which lines join them, \
        and who publishes under which names. ls lists what is published in one. `net up` makes all of it \
        of namespaces and emulated links, and starts its programs.",
    after_help = "Examples:\n  \
        anabranch net show\n  \
        anabranch net show Geant2012 --svg > geant.svg\n  \
        anabranch net paths Geant2012 --from IE --to TR -k 3\n  \
        anabranch net new && sudo anabranch net up demo.toml --serve p1=film.mkv --key demo.key\n  \
        sudo anabranch net exec a -- anabranch net ls\n  \
        sudo anabranch net exec a -- anabranch get films/film.mkv -o got.mkv\n  \
        sudo anabranch net down",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Net {
    /// What to do.
    #[command(subcommand)]
    pub command: NetCommand,
}

/// The commands about networks.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum NetCommand {
    Show(Show),
    Paths(Paths),
    Ls(Ls),
    New(New),
    Key(Key),
    Keys(Keys),
    #[cfg(target_os = "linux")]
    Up(Up),
    #[cfg(target_os = "linux")]
    Exec(Exec),
    #[cfg(target_os = "linux")]
    Status(Status),
    #[cfg(target_os = "linux")]
    Log(Log),
    #[cfg(target_os = "linux")]
    Kill(Kill),
    #[cfg(target_os = "linux")]
    Start(Start),
    #[cfg(target_os = "linux")]
    Down(Down),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Hold(Hold),
}

/// Show a network or a domain, and the paths of a transfer; or list the networks that are built in
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Show a network or a domain, and the paths of a transfer; or list the networks that are \
        built in.\n\n\
        NAME.toml is a domain as its file says. The name of a domain that is up (`net status`) is that \
        domain as it is now: its topology manager is asked which lines are down, `net up` knows which \
        programs run, who publishes and who caches. --domain shows the domain that this machine is a host \
        of, as it is now. --from and --to add the paths that a transfer from the one to the other host \
        has; of a domain as it is now --to may be a name that is published: then those to all that publish \
        it.",
    after_help = "Examples:\n  \
        anabranch net show\n  \
        anabranch net show Nsfnet\n  \
        anabranch net show net.graphml --text > net.txt\n  \
        anabranch net show Geant2012 --svg > geant.svg\n  \
        anabranch net show demo.toml --from a --to p1\n  \
        sudo anabranch net show demo --from a --to films/film.mkv --svg > demo.svg\n  \
        anabranch net show --domain net.toml --to films/film.mkv"
)]
pub struct Show {
    /// A network that is built in, a file of one, the file of a domain (NAME.toml), or a domain that is up;
    /// `-` reads standard input. Without it: list those that are built in
    #[arg(value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub network: Option<String>,

    /// The host at which a transfer's paths begin; with --domain this machine's
    #[arg(long, value_name = "HOST", requires = "to")]
    pub from: Option<String>,

    /// The host at which they end, or SCOPE/LABEL
    #[arg(long, value_name = "HOST|NAME")]
    pub to: Option<String>,

    /// The paths of a class of transfers, as [class.NAME] in the domain's file says
    #[arg(long, value_name = "NAME", requires = "to")]
    pub class: Option<String>,

    /// Draw it, as SVG
    #[arg(long, conflicts_with_all = ["text", "json"])]
    pub svg: bool,

    /// Print it in our own form, which the commands of net read
    #[arg(long, conflicts_with_all = ["json", "from", "to"])]
    pub text: bool,

    /// Print JSON: one object a network or domain, then, of one that was named, one object a line of it; of
    /// a domain also one a node and a path
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub member: Network,
}

/// Find paths, and say which share a link
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Find paths, and say which share a link.\n\n\
        Paths of one group share a link, or are joined by paths that do: a sender must be no greedier on all \
        of them than one TCP is. Each path has its forwarding identifier, which packets carry so that \
        forwarders need to know nothing of it: exact in networks of up to 128 lines, else a filter of 248 \
        bits. `fill` is how much of it is set, `strays` how many links beside the path match by accident.",
    after_help = "Examples:\n  \
        anabranch net paths Geant2012 --from IE --to TR -k 3\n  \
        anabranch net paths Uninett2011 --from UiO --to UNIS --algorithm disjoint --cost delay\n  \
        anabranch net paths net.gml --from a --to b --json | jq 'select(.event == \"path\") | .nodes'"
)]
pub struct Paths {
    /// A network that is built in, or a file; `-` reads standard input
    #[arg(value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub network: String,

    /// Where paths begin: a node, or the beginning of its name
    #[arg(long, value_name = "NODE")]
    pub from: String,

    /// Where they end
    #[arg(long, value_name = "NODE")]
    pub to: String,

    /// How many paths, at most
    #[arg(short, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=PATHS_MAX as i64))]
    pub k: u32,

    /// How they are chosen
    #[arg(long, value_enum, default_value_t = Algorithm::Yen)]
    pub algorithm: Algorithm,

    /// What is to be short
    #[arg(long, value_enum, default_value_t = Cost::Hops)]
    pub cost: Cost,

    /// Draw them in the network, as SVG
    #[arg(long, conflicts_with = "json")]
    pub svg: bool,

    /// Print JSON: one object for the network, one a path
    #[arg(long)]
    pub json: bool,
}

/// List what is published in a network, and who publishes it
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "List what is published in a network, and who publishes it.\n\n\
        A host asks the rendezvous of its network and prints a line for each content of each name: how long \
        it is, and which hosts have it. If hosts have different contents under one name, `get` takes the \
        newest, and the others are marked as older. What the owner of a scope has not signed is left out.",
    after_help = "Examples:\n  \
        anabranch net ls --domain net.toml\n  \
        anabranch net ls films --domain net.toml --json | jq -r .name\n  \
        sudo anabranch net exec a -- anabranch net ls"
)]
pub struct Ls {
    /// Only names of this scope: films lists films/film.mkv
    #[arg(value_name = "SCOPE")]
    pub scope: Option<String>,

    /// Stop after about so many publications
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub most: u32,

    /// Print JSON: one object a publication, which is a name on a host and port
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub member: Network,
}

/// How paths are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// The shortest ones without loops, whatever they share
    Yen,
    /// No common link, with the least sum of costs (Bhandari)
    Disjoint,
    /// No common node between the ends, with the least sum of costs
    NodeDisjoint,
}

/// The cost that paths are to minimize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cost {
    /// The number of links
    Hops,
    /// The delay
    Delay,
}

impl From<Algorithm> for Policy {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Yen => Self::Shortest,
            Algorithm::Disjoint => Self::LinkDisjoint,
            Algorithm::NodeDisjoint => Self::NodeDisjoint,
        }
    }
}
