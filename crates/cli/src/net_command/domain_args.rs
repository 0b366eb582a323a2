//! The options of the commands about domains: `anabranch net new`, `key`, `up` and what follows it.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Write a domain to begin with, and a key
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Write a domain to begin with, and a key.\n\n\
        NAME.toml is a domain that works as it stands, with comments: five forwarders, three ways without a \
        common line between the host a and each of p1 and p2, rendezvous and topology manager on hosts of \
        their own. NAME.key is the secret key of its scope `films`. Files that exist are not overwritten.",
    after_help = "Examples:\n  \
        anabranch net new\n  \
        anabranch net new my && sudo anabranch net up my.toml"
)]
pub struct New {
    /// The domain's file without .toml
    #[arg(value_name = "NAME", default_value = "demo", value_hint = ValueHint::FilePath)]
    pub name: PathBuf,
}

/// Make the key of a scope
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Make the key of a scope.\n\n\
        Whoever has it may publish names that begin with the scope, so nobody else may read the file. \
        Printed is the public key, as the line for [scopes] in the domain's file. A file that exists is not \
        overwritten.",
    after_help = "Examples:\n  \
        anabranch net key films.key\n  \
        anabranch net key films.key --show"
)]
pub struct Key {
    /// The key's file; the scope is called as it is, without .key
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Make nothing: print the public key of the one that is there
    #[arg(long)]
    pub show: bool,
}

/// Make the keys of the members of a domain with keyed identifiers
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Make the keys of the members of a domain with keyed identifiers.\n\n\
        In a domain whose file says identifiers = \"keyed\", only rendezvous and topology manager can make \
        the identifiers by which packets find their way, and only for a while: so a host reaches others over \
        paths that it was given, and no others. services.key is for these two. NODE.key is for the forwarder \
        NODE, which can check identifiers with it, and make none of other forwarders. What is there already \
        stays, so a forwarder that is new gets its key in the same way. `net up` needs none of these files.",
    after_help = "Examples:\n  \
        anabranch net keys net.toml\n  \
        anabranch net keys net.toml --dir /etc/anabranch/keys\n  \
        anabranch forward --domain net.toml --key net.keys/r1.key"
)]
pub struct Keys {
    /// The domain's file; NAME alone means NAME.toml
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Where they go. Without this option: NAME.keys beside the file
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

/// Bring up a whole domain on this machine, with its programs; as root
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Bring up a whole domain on this machine, with its programs; as root.\n\n\
        Each node is a network namespace, each line an emulated link with its rate and delay, its addresses \
        at both ends, and a queue of 50 ms (at least 64 KiB). By IP a node reaches its neighbours only; what \
        leads further is the domain's own forwarding. On the nodes run `anabranch forward`, `rendezvous` and \
        `topology`, as the file says, and a source for each --serve. One that ends is not started again: \
        `net status` shows it, `net log` what it said. A process in the background holds all of it; with \
        that the namespaces and lines are gone, and `net down` ends programs that are left.",
    after_help = "Examples:\n  \
        sudo anabranch net up demo.toml\n  \
        sudo anabranch net up demo.toml --serve p1=film.mkv --serve p2=film.mkv --key demo.key\n  \
        sudo anabranch net up demo.toml --cache r1=64M\n  \
        sudo anabranch net exec a -- anabranch get films/film.mkv -o got.mkv\n  \
        sudo anabranch net down"
)]
pub struct Up {
    /// The domain's file; NAME alone means NAME.toml
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// What it is called while it is up. Without this option: as the file
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// A forwarder that keeps so much of what passes it; may be given several times
    #[arg(long = "cache", value_name = "NODE=SIZE", value_parser = OfNode::parse)]
    pub caches: Vec<OfNode>,

    /// Publish a file or directory on a host, as SCOPE/LABEL: the scope of --key, the name of the file. May
    /// be given several times
    #[arg(long = "serve", value_name = "NODE=PATH", value_parser = OfNode::parse, requires = "key")]
    pub serves: Vec<OfNode>,

    /// The secret key of the scope that --serve publishes in
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,

    /// Report as JSON
    #[arg(long)]
    pub json: bool,

    /// Start this program in place of anabranch
    #[arg(long, value_name = "PROGRAM", hide = true)]
    pub program: Option<PathBuf>,
}

/// The value of an option of the form `NODE=VALUE`.
#[cfg(target_os = "linux")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfNode {
    /// The name of the node.
    pub node: String,
    /// The value for the node.
    pub value: String,
}

#[cfg(target_os = "linux")]
impl OfNode {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((node, value)) if !node.is_empty() && !value.is_empty() => {
                Ok(Self { node: node.into(), value: value.into() })
            }
            _ => Err("expected a node, `=` and a value".into()),
        }
    }
}

/// Run a program on a node
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Run a program on a node.\n\n\
        The program replaces this one, so its exit status is that of the command: 127 if there is no such \
        program, 126 if it cannot be executed, as shells have it. It finds the domain's file in \
        ANABRANCH_DOMAIN and the name of its node in ANABRANCH_NODE, where the commands of anabranch look \
        for them too.",
    after_help = "Examples:\n  \
        sudo anabranch net exec a -- anabranch get films/film.mkv -o got.mkv\n  \
        sudo anabranch net exec a -- ping -c 3 10.91.0.2\n  \
        sudo anabranch net exec demo/r1 -- bash"
)]
pub struct Exec {
    /// The node; NAME/NODE if several domains have one of this name
    #[arg(value_name = "NODE")]
    pub node: String,

    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<std::ffi::OsString>,
}

/// Tell which domains are up, what runs on their nodes, how their lines do
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Debug)]
pub struct Status {
    /// One JSON object a domain
    #[arg(long)]
    pub json: bool,
}

/// Print what the programs of a node said
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Print what the programs of a node said.\n\n\
        It is kept in memory as long as the domain is up; `net status --json` names the file.",
    after_help = "Examples:\n  \
        sudo anabranch net log rv\n  \
        sudo anabranch net log r1 --follow"
)]
pub struct Log {
    /// The node; NAME/NODE if several domains have one of this name
    #[arg(value_name = "NODE")]
    pub node: String,

    /// Go on until the domain is taken down, or Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
}

/// End the programs of a node by SIGKILL, to see what happens
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sudo anabranch net kill r1\n  \
    sudo anabranch net start r1")]
pub struct Kill {
    /// The node; NAME/NODE if several domains have one of this name
    #[arg(value_name = "NODE")]
    pub node: String,
}

/// Start the programs of a node again that have ended
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sudo anabranch net start r1")]
pub struct Start {
    /// The node; NAME/NODE if several domains have one of this name
    #[arg(value_name = "NODE")]
    pub node: String,
}

/// Take down what `up` made, and tell how its lines did
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Debug)]
#[command(long_about = "Take down what `up` made, and tell how its lines did.\n\n\
        Its programs are asked to end (SIGTERM), and after two seconds made to (SIGKILL). Others that still \
        run on its nodes are ended too, and named, also where the process that held it was killed. The exit \
        status is 7 if lines were late or lost what they should not have.")]
pub struct Down {
    /// Its name, or its file. Without it: the only one
    #[arg(value_name = "NAME", value_hint = ValueHint::FilePath)]
    pub name: Option<String>,

    /// All of them
    #[arg(long, conflicts_with = "name")]
    pub all: bool,

    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `up` leaves running
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Debug)]
pub struct Hold {
    /// What it is called
    pub name: String,
}
