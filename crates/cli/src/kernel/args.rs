//! The options of `anabranch kernel`.

use clap::{Args, Subcommand};

use super::{setup, teardown, watch};

/// Options of `kernel`.
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Coupled congestion control for the kernel's MPTCP, and unmodified programs.\n\n\
        Linux has MPTCP, but each subflow of a connection takes as much as a whole TCP. `load` adds \
        controllers that share; `setup` makes a host with several uplinks use them all.",
    after_help = "Examples:\n  \
        sudo anabranch kernel load nmcc-half --default\n  \
        sudo anabranch kernel status\n  \
        sudo anabranch kernel unload --all",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Kernel {
    /// What to do.
    #[command(subcommand)]
    pub command: KernelCommand,
}

/// The commands about the kernel.
#[derive(Clone, Debug, Subcommand)]
pub enum KernelCommand {
    /// Add congestion controllers to the running kernel
    Load(Load),
    /// Take them away again
    Unload(Unload),
    /// Show what is loaded, what the default is and who uses it
    Status(Status),
    /// Say which subflows share a bottleneck, and which do not
    Group(Group),
    /// Show connections and their subflows as they are now
    Watch(watch::Watch),
    /// Use several uplinks together
    Setup(setup::Setup),
    /// Put back what setup changed
    Teardown(teardown::Teardown),
}

/// Options of `kernel load`.
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Add congestion controllers to the running kernel.\n\n\
        They are eBPF programs (struct_ops), made from the same code that `get` runs; they stay until \
        `unload` or the next boot, whatever becomes of this command. Every program in every network \
        namespace can choose them by name (TCP_CONGESTION); with --default new sockets of this namespace use \
        the first one without asking. On sockets without siblings they behave as Reno does, but for wvegas.",
    after_help = "Examples:\n  \
        sudo anabranch kernel load nmcc-half --default\n  \
        sudo anabranch kernel load lia olia balia\n  \
        sudo anabranch kernel load nmcc-half --default --netns lab"
)]
pub struct Load {
    /// nmcc-half (the fairest in today's kernels), nmcc, lia, olia, balia, wvegas, ewtcp, coupled, or reno
    /// (which the kernel will call reno_anb)
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Make the first one the default of new sockets in this network namespace; `unload` puts the old back
    #[arg(long)]
    pub default: bool,

    /// Of --default: the namespace, as `ip netns` names it
    #[arg(long, value_name = "NAME", requires = "default")]
    pub netns: Option<String>,

    /// Load even where there is no MPTCP, or it is switched off
    #[arg(long)]
    pub tcp: bool,

    /// Show all that libbpf and the kernel's verifier say
    #[arg(short, long)]
    pub verbose: bool,
}

/// Options of `kernel unload`.
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Take congestion controllers away again.\n\n\
        Sockets that use one keep it until they close; new ones cannot choose it any more. If one is the \
        default of this namespace, what was the default before is put back.",
    after_help = "Examples:\n  \
        sudo anabranch kernel unload nmcc\n  \
        sudo anabranch kernel unload --all"
)]
pub struct Unload {
    /// Which
    #[arg(required_unless_present = "all", value_name = "NAME")]
    pub names: Vec<String>,

    /// All of them, their groups, and what a killed `load` may have left
    #[arg(long, conflicts_with = "names")]
    pub all: bool,

    /// Where to put back the default too: a namespace, as `ip netns` names it
    #[arg(long, value_name = "NAME")]
    pub netns: Option<String>,
}

/// Options of `kernel status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anabranch kernel status\n  \
    sudo anabranch kernel status --json | jq .controllers")]
pub struct Status {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Options of `kernel group`.
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Say which subflows share a bottleneck, and which do not.\n\n\
        A coupled controller keeps the subflows of one group together to the share of one TCP. Unless told \
        otherwise, all subflows of a connection are one group. If two uplinks are known to share no link, \
        put them into different groups, and each is used to the full. A rule holds for this network \
        namespace, and for connections that exist as well as for new ones; a connection's rule comes before \
        an address's, an address's before an interface's.\n\n\
        Without arguments: the rules.",
    after_help = "Examples:\n  \
        sudo anabranch kernel group wlan0=1 wwan0=2\n  \
        sudo anabranch kernel group 192.0.2.7=1 2001:db8::7=1\n  \
        sudo anabranch kernel group token:3a5f0c12=apart       # each subflow on its own\n  \
        sudo anabranch kernel group --clear wlan0 wwan0"
)]
pub struct Group {
    /// What is where: an interface, a local address or token:HEX (of a connection, see `watch`), and the
    /// number of a group or `apart`
    #[arg(value_name = "WHAT=GROUP")]
    pub rules: Vec<String>,

    /// Remove the rules of these interfaces, addresses and tokens
    #[arg(long)]
    pub clear: bool,

    /// In this namespace, as `ip netns` names it
    #[arg(long, value_name = "NAME")]
    pub netns: Option<String>,

    /// The rules as JSON, one object a line
    #[arg(long, conflicts_with_all = ["rules", "clear"])]
    pub json: bool,
}
