//! The options of `anabranch vm`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anabranch_algo::Span;
use anabranch_machines::wire::PORT;
use anabranch_net::quantity;
use clap::{Args, Subcommand, ValueHint};

/// Move running machines between hosts over all links at once
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Move running machines between hosts over all links at once.\n\n\
        A machine is a guest of QEMU 6.1 or later. Its memory is copied over one encrypted connection of \
        Multipath TCP, while it runs. Before, `predict` measures what the guest changes and what each path \
        carries, and says how long it will take, or that it would never end. Afterwards, `move` says how \
        long the guest stood still, as QEMU counts and as the guest felt it. Whatever is killed meanwhile, \
        one of the two hosts runs the machine. Disks that the hosts do not share are copied, too.",
    after_help = "Examples, the first three at the destination:\n  \
        sudo anabranch vm agent                                 # waits for machines\n  \
        anabranch vm pair laptop                                # prints one line, a secret\n  \
        anabranch vm ls\n\n  \
        anabranch vm trust rack 192.0.2.7                       # at the source: paste that line\n  \
        anabranch vm attach web --qmp /run/web.qmp --config web.toml\n  \
        anabranch vm predict web --to rack\n  \
        sudo anabranch vm move web --to rack --via eth0 --via wwan0",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Vm {
    /// The directory for what is known of machines and hosts; without it, `anabranch/vm` in the directory for
    /// state. Programs that share machines need the same one
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: VmCommand,
}

/// The commands.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum VmCommand {
    Run(Run),
    Attach(Attach),
    Ls(Ls),
    #[command(about = "End a machine at once; its guest is not asked")]
    Stop(Named),
    #[command(about = "Take a machine off the list, or the trace of one that left; its QEMU goes on")]
    Forget(Named),
    Pair(Pair),
    Trust(Trust),
    Agent(Agent),
    Predict(Predict),
    Move(Move),
    #[command(
        about = "Settle a move that was interrupted, if its guard was killed too: one host runs it then"
    )]
    Recover(Named),
    Protect(Protect),
    #[command(about = "Show how far shadows are behind, of machines here and of those of other hosts")]
    Protection(Shown),
    #[command(about = "End the protection of a machine, which runs on; its shadow is removed")]
    Unprotect(Named),
    #[command(
        about = "Take over a machine whose shadow is at this host: its source is not asked, and may be dead",
        long_about = "Take over a machine whose shadow is at this host: its source is not asked, and may be \
            dead.\n\n\
            Nothing more comes in from then on, and the machine starts from the disks that are here. What \
            was written in the time that is said to be missing is lost. If the source lives after all, two \
            machines run until it hears of this: then the one there is ended, and what it wrote since is \
            lost."
    )]
    Failover(Named),
    Sync(Sync),
    #[command(
        about = "Give a machine back to the host it was taken over from, once `sync` has copied it there",
        long_about = "Give a machine back to the host it was taken over from, once `sync` has copied it \
            there.\n\n\
            It stands still, all that it wrote is sent, and it starts there: nothing is lost. It is then \
            protected again, in the first direction, if an agent runs at both hosts."
    )]
    Failback(Named),
    #[command(hide = true)]
    Keep(Keep),
    #[command(hide = true)]
    Guard(Guard),
}

/// Start a machine, which goes on when this command has ended
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anabranch vm run web --memory 2G --cpus 2 --disk /srv/shared/web.qcow2:qcow2:shared --net bridge:br0\n  \
    anabranch vm run try --memory 256M --tcg --kernel vmlinuz --initrd initrd --append console=ttyS0\n\n\
    Its serial console goes to console.log in its directory below --state.")]
pub struct Run {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Read what it is made of from this file (TOML); options that are given come before it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// The memory
    #[arg(long, value_name = "SIZE", value_parser = megabytes)]
    pub memory: Option<u64>,

    /// The processors
    #[arg(long, value_name = "N")]
    pub cpus: Option<u16>,

    /// A Linux kernel to start
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kernel: Option<PathBuf>,

    /// The kernel's initial file system
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub initrd: Option<PathBuf>,

    /// The kernel's command line
    #[arg(long, value_name = "TEXT")]
    pub append: Option<String>,

    /// A disk; `:shared` if other hosts have the same bytes at this path, otherwise it is copied when the
    /// machine moves. May be given several times
    #[arg(long, value_name = "FILE[:raw|:qcow2][:shared]")]
    pub disk: Vec<String>,

    /// A network card, connected to QEMU's own network, a tap device or a bridge. May be given several times
    #[arg(long, value_name = "user|tap:DEV|bridge:DEV")]
    pub net: Vec<String>,

    /// Translate the guest's instructions: for hosts without KVM, and for trying
    #[arg(long)]
    pub tcg: bool,

    /// Print the machine as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Make a machine known that another program runs, by its QMP socket
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anabranch vm attach web --qmp /run/web.qmp                     # can be predicted\n  \
    anabranch vm attach web --qmp /run/web.qmp --config web.toml   # can move\n\n\
    The file has to say what QEMU was started with, as the destination is started with the same:\n  \
    name = \"web\"\n  memory_mb = 2048\n  cpus = 2\n  machine = \"pc-i440fx-7.2\"\n  \
    [[disks]]\n  path = \"/srv/shared/web.qcow2\"\n  format = \"qcow2\"\n  shared = true")]
pub struct Attach {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The QMP socket; a move holds it, so it should be a socket of its own
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub qmp: PathBuf,

    /// What the machine is made of (TOML); without it, it does not move
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// The socket of the virtio-serial port to which the guest writes a heartbeat
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub heartbeat: Option<PathBuf>,

    /// Print the machine as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// List the machines of this host, and where those that left went
#[derive(Args, Clone, Debug)]
pub struct Ls {
    /// One JSON object for each machine
    #[arg(long)]
    pub json: bool,
}

#[expect(missing_docs, reason = "clap would show it as the help of each command that uses it")]
#[derive(Args, Clone, Debug)]
pub struct Named {
    /// The name of the machine
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Print the end as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Let a client send machines here: prints one line, a secret, for `vm trust` at the client
#[derive(Args, Clone, Debug)]
pub struct Pair {
    /// A name for the client
    #[arg(value_name = "CLIENT")]
    pub client: String,
}

/// Make a host known that machines can move to; its line of `vm pair` comes from standard input
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  ssh rack sudo anabranch vm pair laptop | anabranch vm trust rack 192.0.2.7"
)]
pub struct Trust {
    /// A name for the host
    #[arg(value_name = "HOST")]
    pub host: String,

    /// Its address, and the port of its agent if that is another than 26230
    #[arg(value_name = "ADDR[:PORT]")]
    pub address: String,
}

/// Wait for machines of clients that are paired with this host
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Wait for machines of clients that are paired with this host.\n\n\
        Starts a QEMU for each machine that comes, with the memory and devices that it has at its source. \
        Machines run on when this command ends. Its addresses are announced to Multipath TCP while it runs \
        (which needs root), so that machines come over all of them.",
    after_help = "Examples:\n  \
        sudo anabranch vm agent\n  \
        sudo anabranch vm agent --memory-max 16G --disks /srv/shared --net bridge:br0"
)]
pub struct Agent {
    /// Address to listen on; may be given several times. Port 0 takes a free one
    #[arg(short, long, value_name = "ADDR:PORT", default_values_t = [SocketAddr::from(([0, 0, 0, 0], PORT))])]
    pub listen: Vec<SocketAddr>,

    /// An address by which sources reach this host; may be given several times. Without it: all that it has
    #[arg(long, value_name = "ADDR")]
    pub address: Vec<IpAddr>,

    /// The most memory of all machines that come; without it, what the host has left
    #[arg(long, value_name = "SIZE", value_parser = megabytes)]
    pub memory_max: Option<u64>,

    /// Let guests have disks below this directory; may be given several times. Without it, they have none.
    /// Disks that come with a machine, and shadows, are made in the first one
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub disks: Vec<PathBuf>,

    /// Let guests have this connection; may be given several times. Without it, they have none. `user` also
    /// reaches services of this host that listen at loopback addresses only
    #[arg(long, value_name = "user|tap:DEV|bridge:DEV")]
    pub net: Vec<String>,

    /// Report on standard output as JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// Say how long a move would take over each path and over all, or that it would never end
#[derive(Args, Clone, Debug)]
#[command(after_help = "Takes some seconds; the guest runs on, and nothing moves.\n\nExample:\n  \
    sudo anabranch vm predict web --to rack --via eth0 --via wwan0")]
pub struct Predict {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub way: Way,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Move a running machine to another host over all links at once
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Move a running machine to another host over all links at once.\n\n\
        Measures and predicts first, and refuses a move that would never end. Then the memory is copied \
        while the guest runs; at the end it stands still for a moment, and goes on at the destination. A \
        link that is named with --via and is away is an error, not a reason for a detour; one that is lost \
        meanwhile is reported, and the others go on. Ctrl-C leaves the machine here.",
    after_help = "Examples:\n  \
        sudo anabranch vm move web --to rack\n  \
        sudo anabranch vm move web --to rack --via eth0 --via wwan0 --max-pause 1s\n\n\
        If the guest changes more than the paths carry:\n  \
        --max-pause 3s    it stands still for longer at the end, once\n  \
        --auto-converge   it is slowed down, ever more, to a hundredth of its speed at worst\n  \
        --post-copy       it goes to the destination after one pass, and waits there for each page that it \
        touches: seconds in which it hardly moves. If a host or all paths fail then, the machine is lost"
)]
pub struct Move {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub way: Way,

    /// Slow the guest down until the move ends
    #[arg(long)]
    pub auto_converge: bool,

    /// Let the guest run at the destination before all of its memory is there
    #[arg(long)]
    pub post_copy: bool,

    /// Begin although the move would never end as things are
    #[arg(long)]
    pub anyway: bool,

    /// Do not measure and predict before
    #[arg(long, conflicts_with = "anyway")]
    pub no_predict: bool,

    /// Report on standard output as JSON, one object a line
    #[arg(long)]
    pub json: bool,

    /// Only the result and errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// What `predict` and `move` share.
#[derive(Args, Clone, Debug)]
pub struct Way {
    /// The name of the machine
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The host to move to, one of `vm trust`
    #[arg(long, value_name = "HOST")]
    pub to: String,

    /// Use this interface, and only interfaces that are named; repeat the option for each. Without it: all
    /// that lead there
    #[arg(long, value_name = "IFACE")]
    pub via: Vec<String>,

    /// The longest time for which the guest stands still at the end, as QEMU counts
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = pause)]
    pub max_pause: Span,
}

/// Protect a running machine: its disks are copied to a shadow at another host, and what it writes follows
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Protect a running machine: its disks are copied to a shadow at another host, and what it \
        writes follows.\n\n\
        Returns when the first copy is complete; a process of its own goes on. Writes do not wait for the \
        shadow, which is some time behind: `vm protection` shows how much, as measured by a stamp that is \
        read back from there. If this host is lost, `vm failover NAME` at the other one starts the machine \
        from the shadow. The agent there needs --disks. A protection whose process was killed is taken up by \
        the same command.",
    after_help = "Examples:\n  \
        sudo anabranch vm protect web --to rack --via eth0 --via wwan0\n  \
        anabranch vm protection\n  \
        sudo anabranch vm failover web     # at rack, when this host is lost\n  \
        sudo anabranch vm sync web         # at rack, when it is back\n  \
        sudo anabranch vm failback web     # at rack"
)]
pub struct Protect {
    /// The name of the machine
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The host of the shadow, one of `vm trust`
    #[arg(long, value_name = "HOST")]
    pub to: String,

    /// Use this interface, and only interfaces that are named; repeat the option for each. Without it: all
    /// that lead there
    #[arg(long, value_name = "IFACE")]
    pub via: Vec<String>,

    /// Report on standard output as JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// Copy a machine that was taken over back to the host it came from, and keep the copy up to date
#[derive(Args, Clone, Debug)]
#[command(after_help = "The disks that are there are not trusted: all is copied. `vm failback` is next.")]
pub struct Sync {
    /// The name of the machine
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Another host; without it, the one that the machine was taken over from
    #[arg(long, value_name = "HOST")]
    pub to: Option<String>,

    /// Use this interface, and only interfaces that are named; repeat the option for each. Without it: all
    /// that lead there
    #[arg(long, value_name = "IFACE")]
    pub via: Vec<String>,

    /// Report on standard output as JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

#[expect(missing_docs, reason = "clap would show it as the help of the command")]
#[derive(Args, Clone, Debug)]
pub struct Shown {
    /// The name of the machine; without it, all
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// One JSON object for each
    #[arg(long)]
    pub json: bool,
}

/// Follow the copy of a protected machine. Started by `vm protect`
#[derive(Args, Clone, Debug)]
pub struct Keep {
    /// The name of the machine
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Try again for a while if the other host is not ready
    #[arg(long = "patient")]
    pub is_patient: bool,
}

/// Settle the move of a mover that is killed. Started by `vm move`
#[derive(Args, Clone, Debug)]
pub struct Guard {
    /// The name of the machine
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Reads a size of memory, MB of 2^20 bytes.
fn megabytes(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let by = match &text[number.len()..] {
        "" | "M" | "MB" | "Mi" | "MiB" => 1.0,
        "G" | "GB" | "Gi" | "GiB" => 1_024.0,
        _ => 0.0,
    };
    match number.parse::<f64>() {
        Ok(size) if by > 0.0 && size > 0.0 && size * by <= 4_194_304.0 => Ok((size * by) as u64),
        _ => Err(format!("'{text}' is no size of memory: 512M, 2G")),
    }
}

fn pause(text: &str) -> Result<Span, String> {
    let most = Span::from_secs(600);
    let wrong = || format!("'{text}' is no pause: 100ms, 2s; at least 1ms, at most 600s");
    quantity::span(text).filter(|span| *span >= Span::from_millis(1) && *span <= most).ok_or_else(wrong)
}
