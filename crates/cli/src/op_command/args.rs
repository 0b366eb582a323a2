//! The options of `anabranch op`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anabranch_operator::port::Wanted;
use anabranch_operator::spec::Place;
use anabranch_operator::wire::PORT;
use clap::{Args, Subcommand, ValueEnum, ValueHint};

/// Run packet functions that start at once, and move while packets come
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Run packet functions that start at once, and move while packets come.\n\n\
        A function (a firewall, a rate limiter, a NAT) is a module of WebAssembly. An agent carries \
        thousands of instances in one process, between two devices that it makes: users reach an instance \
        as their gateway. Instances are not virtual machines: a wrong one harms only its own packets, but \
        a flaw in this program reaches all.",
    after_help = "Examples:\n  \
        sudo anabranch op agent --inside fn-in@br-in --outside fn-out@br-out\n  \
        sudo anabranch op fn run office firewall --inside 10.1.0.1/24 --outside 10.2.0.1/24 \
        --gateway 10.2.0.254 --set allow=tcp/22\n  \
        sudo anabranch op fn ls\n  \
        sudo anabranch op fn move office --to rack              # rack: known by op pair and op trust\n  \
        sudo anabranch op fn storm --count 10000                # how many can this machine carry?",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Op {
    /// The directory for what is known of instances and hosts; without it, `anabranch/op` in the directory
    /// for state. A command and the agent that it asks need the same one
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: OpCommand,
}

/// The commands.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum OpCommand {
    Agent(Agent),
    Pair(Pair),
    Trust(Trust),
    Fn(Fn),
}

/// Carry functions between two devices, until Ctrl-C
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Carry functions between two devices, until Ctrl-C.\n\n\
        Makes the devices (TAP), which go when this ends, as do the instances. With --store redb, they come \
        back at the next start, with the state of their last move or start.",
    after_help = "Examples:\n  \
        sudo anabranch op agent --inside fn-in@br-in --outside fn-out@br-out\n  \
        sudo anabranch op agent --inside fn0=10.1.0.254/24 --store redb"
)]
pub struct Agent {
    /// The device at the users' side: NAME, NAME@BRIDGE to make it a port of a bridge, or NAME=ADDRESS/PREFIX
    /// for an address of this host behind it
    #[arg(long, value_name = "DEVICE")]
    pub inside: Wanted,

    /// The device at the other side; without it, packets go back out of the one that there is
    #[arg(long, value_name = "DEVICE")]
    pub outside: Option<Wanted>,

    /// Where to keep what instances are made of
    #[arg(long, value_enum, value_name = "STORE", default_value_t = Backend::Memory)]
    pub store: Backend,

    /// Take instances of hosts that are paired, at this address; may be given several times, and port 0 takes
    /// a free one
    #[arg(long, value_name = "ADDR:PORT", default_values_t = [SocketAddr::from(([0, 0, 0, 0], PORT))])]
    pub listen: Vec<SocketAddr>,

    /// An address by which other hosts reach this one; may be given several times. Without it: all that it
    /// has
    #[arg(long, value_name = "ADDR")]
    pub address: Vec<IpAddr>,

    /// The most instances
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub instances_max: u32,

    /// Print what happens as JSON objects
    #[arg(long)]
    pub json: bool,
}

/// Let a host move functions to this one: print one line, a secret
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  \
    anabranch op pair laptop | ssh laptop anabranch op trust rack 192.0.2.7")]
pub struct Pair {
    /// The name of that host here
    #[arg(value_name = "CLIENT")]
    pub client: String,
}

/// Know a host to which functions can move: read the line of its `op pair` from standard input
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  anabranch op trust rack 192.0.2.7 < line")]
pub struct Trust {
    /// The name for it
    #[arg(value_name = "HOST")]
    pub host: String,

    /// Its address; the port is 26231 unless it is given
    #[arg(value_name = "ADDR[:PORT]", value_hint = ValueHint::Hostname)]
    pub address: String,
}

/// Where an agent keeps what instances are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// In memory: nothing is left when it ends
    Memory,
    /// In a file of redb in the directory for state
    Redb,
}

/// Start, look at and end instances of functions
#[derive(Args, Clone, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Fn {
    /// What to do.
    #[command(subcommand)]
    pub command: FnCommand,
}

/// The commands for instances.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum FnCommand {
    Run(Run),
    Ls(Ls),
    Console(Console),
    Move(Move),
    #[command(about = "End an instance at once; its state is gone")]
    Rm(Named),
    Storm(Storm),
}

/// Start an instance of a function
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anabranch op fn run office firewall --inside 10.1.0.1/24 --outside 10.2.0.1/24 --set allow=tcp/22\n  \
    anabranch op fn run slow limiter --inside 10.1.0.2/24 --outside 10.2.0.2/24 --set rate=125k\n  \
    anabranch op fn run nat nat44 --inside 10.1.0.3/24 --outside 203.0.113.1/24 --gateway 203.0.113.254\n  \
    anabranch op fn run mine ./mine.wasm --inside 10.1.0.4/24\n\n\
    Settings: firewall: allow=SERVICE (from outside), deny=SERVICE (from inside), idle=SECONDS; limiter: \
    rate=BYTES, burst=BYTES (a second, for each user and direction); nat44: block=PORTS, idle=SECONDS. A \
    service is tcp/PORT, udp/PORT or icmp.")]
pub struct Run {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The function: firewall, limiter, nat44, or a module (a file NAME.wasm)
    #[arg(value_name = "FUNCTION", value_hint = ValueHint::FilePath)]
    pub function: String,

    /// Its address at the users' side, which is their gateway
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    pub inside: Place,

    /// Its address at the other side
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    pub outside: Option<Place>,

    /// Where packets go that leave outside and are for no neighbour there
    #[arg(long, value_name = "ADDRESS", requires = "outside")]
    pub gateway: Option<Ipv4Addr>,

    /// A setting of the function; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,

    /// Print what the start took as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// List the instances of this host
#[derive(Args, Clone, Debug)]
pub struct Ls {
    /// One JSON object for each instance
    #[arg(long)]
    pub json: bool,
}

/// Show what an instance has done, as its function says and as the host counts
#[derive(Args, Clone, Debug)]
pub struct Console {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Print it as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Move an instance to another host while packets come
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Move an instance to another host while packets come.\n\n\
        It goes with its state, its addresses and its MAC, over one encrypted connection of Multipath TCP; \
        packets that come meanwhile wait, and follow it. Both hosts have to be at the same networks. \
        Whatever is killed meanwhile, one of the two runs it.",
    after_help = "Examples:\n  \
        anabranch op fn move office --to rack\n  \
        anabranch op fn move office --to rack --via eth1 --via wwan0"
)]
pub struct Move {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The host, as `op trust` named it
    #[arg(long, value_name = "HOST")]
    pub to: String,

    /// Use this link; may be given several times. Without it, all that lead there
    #[arg(long, value_name = "IFACE")]
    pub via: Vec<String>,

    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The name of an instance.
#[derive(Args, Clone, Debug)]
pub struct Named {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Start many instances, each checked by a ping: how many this machine carries, and how fast they start
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Start many instances, each checked by a ping: how many this machine carries, and how fast \
        they start.\n\n\
        Uses a network namespace of its own, which goes with it; it needs no agent. A ping goes through the \
        kernel's device, and the function answers it. Each --no-… leaves out one of the reasons for which a \
        start is fast.",
    after_help = "Examples:\n  \
        sudo anabranch op fn storm --count 10000\n  \
        sudo anabranch op fn storm --count 1000 --function nat44 --no-pool"
)]
pub struct Storm {
    /// How many instances
    #[arg(long, value_name = "N", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,

    /// The function: firewall or limiter, or a module (a file NAME.wasm)
    #[arg(long, value_name = "FUNCTION", default_value = "firewall", value_hint = ValueHint::FilePath)]
    pub function: String,

    /// A setting of the function; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,

    /// Where to record instances; the file of redb is a temporary one
    #[arg(long, value_enum, value_name = "STORE", default_value_t = Backend::Memory)]
    pub store: Backend,

    /// Make memory for each instance when it starts, instead of reserving places for all
    #[arg(long)]
    pub no_pool: bool,

    /// Copy an instance's memory when it starts, instead of page by page when it writes
    #[arg(long)]
    pub no_copy_on_write: bool,

    /// Compile the function for each instance
    #[arg(long)]
    pub no_shared_code: bool,

    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a setting is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
