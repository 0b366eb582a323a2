//! The options of `anabranch kernel`.

use anabranch_kernel::controllers::{CONTROLLERS, Controller};
use clap::{Args, Subcommand};

use super::{setup, teardown, watch};

/// Coupled congestion control for the kernel's MPTCP
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Coupled congestion control for the kernel's MPTCP, and unmodified programs.\n\n\
        Linux has MPTCP, but each subflow of a connection takes as much as a whole TCP. `load` adds \
        controllers that share; `setup` makes a host with several uplinks use them all. A controller governs \
        what its own host sends: for uploads load it here, for downloads on the server.",
    after_help = "Examples:\n  \
        sudo anabranch kernel load cubic-coupled --default\n  \
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
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum KernelCommand {
    Load(Load),
    Unload(Unload),
    Status(Status),
    Group(Group),
    Watch(watch::Watch),
    Setup(setup::Setup),
    Teardown(teardown::Teardown),
}

/// Add congestion controllers to the running kernel
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Add congestion controllers to the running kernel.\n\n\
        They are eBPF programs (struct_ops), made from the same code that `get` runs; they stay until \
        `unload` or the next boot, whatever becomes of this command. Every program in every network \
        namespace can choose them by name; with --default new sockets of this namespace use the first one \
        without asking. On sockets without siblings, plain TCP too, cubic-coupled is CUBIC (RFC 9438), \
        wvegas itself and the others Reno. So cubic-coupled is the one for --default.\n\n\
        The sender decides: a controller has no part in what this host receives. It is the machine's, and \
        cannot be loaded under `ip netns exec`, whose /sys ends with the command: run it outside, with \
        --netns.\n\n\
        Those that the kernel (TCP_CONGESTION, sysctl, `ip route ... congctl`) calls otherwise than this \
        program does are listed with both names; this command takes either.",
    after_help = "Examples:\n  \
        sudo anabranch kernel load cubic-coupled --default\n  \
        sudo anabranch kernel load lia olia balia\n  \
        sudo anabranch kernel load cubic-coupled --default --netns lab"
)]
pub struct Load {
    #[expect(missing_docs, reason = "clap would take it for the help, which is made from the table")]
    #[arg(required = true, value_name = "NAME", help = listed())]
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

/// Lists the controllers, as `cubic-coupled (to the kernel cubic_coupled), nmcc, …`.
fn listed() -> String {
    let one = |c: &Controller| match c.name == c.linux {
        true => c.name.to_owned(),
        false => format!("{} (to the kernel {})", c.name, c.linux),
    };
    CONTROLLERS.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Take them away again
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Take congestion controllers away again.\n\n\
        Sockets that use one keep it until they close; new ones cannot choose it any more. In every network \
        namespace where one is the default, what was the default before is put back if that is known, and \
        said.",
    after_help = "Examples:\n  \
        sudo anabranch kernel unload cubic-coupled\n  \
        sudo anabranch kernel unload --all"
)]
pub struct Unload {
    /// Which
    #[arg(required_unless_present = "all", value_name = "NAME")]
    pub names: Vec<String>,

    /// All of them, their groups, and what a killed `load` may have left
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
}

/// Show what is loaded, what the default is and who uses it
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Show what is loaded, what the default is and who uses it.\n\n\
        Without root: whether MPTCP is on, the default of new sockets, and the names that sockets can \
        choose. How many connections use a controller of ours is shown to root. One that is \"pinned \
        elsewhere\" was loaded in a container, or, seen from one or from `ip netns exec`, on the host; it is \
        unloaded there. While the sysctl \
        kernel.bpf_stats_enabled is 1, the kernel counts the calls of each controller's programs and the \
        time in them (which costs some), and they are shown too.",
    after_help = "Examples:\n  \
        anabranch kernel status\n  \
        sudo anabranch kernel status --json | jq .controllers"
)]
pub struct Status {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Say which subflows share a bottleneck, and which do not
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Say which subflows share a bottleneck, and which do not.\n\n\
        A coupled controller keeps the subflows of one group together to the share of one TCP. Unless told \
        otherwise, all subflows of a connection are one group. If two uplinks are known to share no link, \
        put them into different groups, and each is used to the full. A rule holds for this network \
        namespace, and for connections that exist as well as for new ones; a connection's rule comes before \
        an address's, an address's before an interface's.\n\n\
        `all` is about the connections that this namespace begins from now on, of plain TCP too: they are \
        coupled as if they were the subflows of one, with those of other namespaces that have the same \
        number; eight at most.\n\n\
        Without arguments: the rules.",
    after_help = "Examples:\n  \
        sudo anabranch kernel group wlan0=1 wwan0=2\n  \
        sudo anabranch kernel group 192.0.2.7=1 2001:db8::7=1\n  \
        sudo anabranch kernel group token:3a5f0c12=apart       # each subflow on its own\n  \
        sudo anabranch kernel group all=1                      # all connections here as one\n  \
        sudo anabranch kernel group --clear wlan0 wwan0"
)]
pub struct Group {
    /// What is where: an interface, a local address, token:HEX (of a connection, see `watch`) or all, and
    /// the number of a group or `apart`
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
