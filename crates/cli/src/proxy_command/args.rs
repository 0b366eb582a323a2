//! The options of `anabranch proxy`.

use std::path::PathBuf;

use anabranch_proxy::config;
use clap::{Args, Subcommand, ValueHint};

use super::role_args::{About, RoleArgs};

/// Let every program use several links, towards servers that know nothing of it
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Let every program use several links, towards servers that know nothing of it.\n\n\
        The server runs on a host with a good connection, the client on the host that has the links. \
        Programs speak SOCKS or HTTP to the client, at one port. What they send travels over Multipath TCP \
        connections between the two, which use all links at once and outlive any of them; the server \
        connects to where \
        the programs want to go.",
    after_help = "Examples:\n  \
        anabranch proxy server\n  \
        (umask 077; anabranch proxy pair --name laptop > laptop.pair)\n  \
        anabranch proxy client --server proxy.example --pair-file laptop.pair\n  \
        curl -x socks5h://127.0.0.1:1080 https://example.org/",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Proxy {
    /// What to do.
    #[command(subcommand)]
    pub command: ProxyCommand,
}

/// The commands about the proxy.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum ProxyCommand {
    Server(Box<RoleArgs<config::Server>>),
    Client(Box<RoleArgs<config::Client>>),
    Pair(Pair),
    Remove(Remove),
    Status(Status),
    Rules(Rules),
    Drain(Drain),
}

impl About for config::Server {
    const ABOUT: &'static str = "Connect clients' programs with the world";
    const LONG: &'static str = "Connect clients' programs with the world, until Ctrl-C.\n\n\
        It listens for clients that `anabranch proxy pair` made a key for, and connects to what their \
        programs ask for: names are looked up here. Destinations in private, local, multicast and \
        documentation networks are refused unless --allow names them. Of all rules that fit an address, the \
        one with the longest prefix decides, but a denied port is denied in allowed networks too.";
    const EXAMPLES: &'static str = "Examples:\n  \
        anabranch proxy server\n  \
        anabranch proxy server --listen 0.0.0.0:443 --allow 10.1.0.0/16:22 --deny :25\n  \
        anabranch proxy server --config /etc/anabranch/proxy-server.toml --check\n  \
        anabranch proxy server --plain --from 192.168.7.0/24";
}

impl About for config::Client {
    const ABOUT: &'static str = "Take programs' connections to a server, over all links";
    const LONG: &'static str = "Take programs' connections to a server, over all links, until Ctrl-C.\n\n\
        A program is told at once that it is connected, and its first bytes travel together with the \
        request: that saves it two round trips. If the destination turns out to be out of reach, its \
        connection is reset. Programs that must know the reason want --strict-socks.\n\n\
        With --via the kernel is told which links to use, as long as this runs; that needs CAP_NET_ADMIN. \
        Without it: `sudo anabranch kernel setup` tells the kernel once.";
    const EXAMPLES: &'static str = "Examples:\n  \
        anabranch proxy client --server proxy.example --pair-file laptop.pair\n  \
        sudo anabranch proxy client --server proxy.example --pair-file laptop.pair --via wlan0 --via \
        wwan0:backup\n  \
        anabranch proxy client --config /etc/anabranch/proxy-client.toml\n  \
        anabranch proxy client --server 192.168.7.1 --plain --http 127.0.0.1:8080";
}

/// Let a client in: make its key, and print the line that it needs
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Let a client in: make its key, and print the line that it needs.\n\n\
        Run it where the server runs, as the same user. The line is a secret: whoever has it can use this \
        server. It is let in at once, also if the server runs. `anabranch proxy remove` takes it off.",
    after_help = "Examples:\n  \
        (umask 077; anabranch proxy pair --name laptop > laptop.pair)\n  \
        ssh proxy.example anabranch proxy pair --name $(hostname) > server.pair"
)]
pub struct Pair {
    /// What the client is called in what the server reports
    #[arg(long, value_name = "NAME", default_value = "client")]
    pub name: String,

    /// The directory in which the server keeps its keys; the default is your state directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
}

/// Take a client off: the server does not let it in any more
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Take a client off: the server does not let it in any more.\n\n\
        Run it where the server runs, as the same user. A server that runs ends the client's connections \
        within a second. The client can be let in again with a new key: `anabranch proxy pair`.",
    after_help = "Example:\n  anabranch proxy remove laptop"
)]
pub struct Remove {
    /// What the client is called
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The directory in which the server keeps its keys; the default is your state directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
}

/// Show what the proxies of this user are doing: links, connections
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Show what the proxies of this user are doing, clients and servers: each link's rate, \
        round-trip time, loss and share of the bytes, the connections that are open, what has ended.\n\n\
        It asks each at a Unix socket that only its owner may open: for root's, say sudo. Rates are those of \
        the last second or two. Loss is that of the last ten seconds, of what leaves here; what is lost on \
        the way to here the other end knows. A page for a browser, and metrics for Prometheus: --status of \
        `anabranch proxy client` and `anabranch proxy server`.",
    after_help = "Examples:\n  \
        anabranch proxy status\n  \
        sudo anabranch proxy status --json | jq '.links[]'\n  \
        watch -n 1 anabranch proxy status"
)]
pub struct Status {
    /// One JSON object a proxy on standard output
    #[arg(long)]
    pub json: bool,
}

/// Tell the clients of a server that runs to go to their other servers, some a second
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Tell the clients of a server that runs to go to their other servers, some a second.\n\n\
        Run it where the server runs, as the same user. A client that was told opens no connection here \
        any more, and those that are open go on. It ends when no client is left or at --until, with exit \
        status 1 if some are left then. Ctrl-C ends this command, not the drain. Until the server starts \
        again, or --cancel, clients that were told and new ones are turned away. A client that has only this \
        server waits for it.",
    after_help = "Examples:\n  \
        anabranch proxy drain --rate 20/s && systemctl restart anabranch-proxy-server\n  \
        anabranch proxy drain --until 10min --to b.proxy.example\n  \
        anabranch proxy drain --cancel"
)]
pub struct Drain {
    /// Clients that are told in a second: 5, 5/s, 0.5/s, 30/min. Without it: as many as --until needs, or
    /// 10/s
    #[arg(long, value_name = "N/s")]
    pub rate: Option<String>,

    /// Tell no client after this: a time from now (90s, 10min, 2h), or of Unix (@1800000000)
    #[arg(long, value_name = "T")]
    pub until: Option<String>,

    /// Tell clients to go to this server; they do if they have its key and it is near. Without a port: 26228
    #[arg(long, value_name = "SERVER")]
    pub to: Option<String>,

    /// Tell no more clients until --resume
    #[arg(long, conflicts_with_all = ["rate", "until", "to", "resume", "cancel"])]
    pub pause: bool,

    /// Tell clients again
    #[arg(long, conflicts_with_all = ["rate", "until", "to", "cancel"])]
    pub resume: bool,

    /// End the drain: clients may come back
    #[arg(long, conflicts_with_all = ["rate", "until", "to"])]
    pub cancel: bool,

    /// The process of the server, if several run here
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,

    /// Do not wait for the end
    #[arg(long)]
    pub no_wait: bool,

    /// Report on standard output as JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// Print the nftables rules that redirect programs' connections to a client
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Print the nftables rules that redirect programs' connections to a client's `transparent` \
        listener.\n\n\
        A client with --install-rules sets them itself, and removes them at its end. They leave alone what \
        goes to the server, to this host, and to private, link-local and multicast networks. If the client \
        is not there, what they redirect is refused.",
    after_help = "Examples:\n  \
        anabranch proxy rules --transparent 127.0.0.1:1081 --server proxy.example | sudo nft -f -\n  \
        sudo nft delete table inet anabranch_proxy"
)]
pub struct Rules {
    /// Where the client listens; may be given for IPv4 and for IPv6
    #[arg(long, value_name = "ADDR:PORT")]
    pub transparent: Vec<String>,

    /// The client's server. Without a port: 26228
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Option<String>,

    /// Take both from the client's settings
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}
