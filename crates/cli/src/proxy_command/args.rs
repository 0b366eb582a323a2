//! The options of `anabranch proxy`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use proxy::PORT;
use proxy::links::Via;
use proxy::policy::Scope;
use proxy::trunk::Destination;

/// Let every program use several links, towards servers that know nothing of it
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Let every program use several links, towards servers that know nothing of it.\n\n\
        The server runs on a host with a good connection, the client on the host that has the links. \
        Programs speak SOCKS5 or HTTP to the client. What they send travels over Multipath TCP connections \
        between the two, which use all links at once and outlive any of them; the server connects to where \
        the programs want to go.",
    after_help = "Examples:\n  \
        anabranch proxy server\n  \
        anabranch proxy pair --name laptop > laptop.pair\n  \
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
#[expect(missing_docs, reason = "the help of each is that of its options; clap would put this before it")]
#[derive(Clone, Debug, Subcommand)]
pub enum ProxyCommand {
    Server(Server),
    Client(Box<Client>),
    Pair(Pair),
}

/// Connect clients' programs with the world
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Connect clients' programs with the world, until Ctrl-C.\n\n\
        It listens for clients that `anabranch proxy pair` made a key for, and connects to what their \
        programs ask for: names are looked up here. Destinations in private, local, multicast and \
        documentation networks are refused unless --allow names them. Of all rules that fit an address, the \
        one with the longest prefix decides.",
    after_help = "Examples:\n  \
        anabranch proxy server\n  \
        anabranch proxy server --listen 0.0.0.0:443 --allow 10.1.0.0/16:22 --deny :25\n  \
        anabranch proxy server --plain --from 192.168.7.0/24"
)]
pub struct Server {
    /// Address to listen on for clients. Port 0 takes a free one, and ADDR alone means port 26228. One
    /// address of several takes clients that come there only, but their other links may come to any
    #[arg(short, long, value_name = "ADDR:PORT", value_parser = listen_address)]
    #[arg(default_value = "[::]:26228")]
    pub listen: SocketAddr,

    /// Allow destinations in this network (10.1.0.0/16, fd00::/8, 192.168.1.7), at this port only if one is
    /// given (10.1.0.0/16:22, [fd00::/8]:443, :443); may be given several times
    #[arg(long, value_name = "NET[:PORT]")]
    pub allow: Vec<Scope>,

    /// Refuse destinations in this network, at this port only if one is given; may be given several times
    #[arg(long, value_name = "NET[:PORT]")]
    pub deny: Vec<Scope>,

    /// No encryption between client and server, and no keys: whoever is in a network of --from may use this
    /// server, and whoever is between can read and change everything
    #[arg(long, requires = "from")]
    pub plain: bool,

    /// Of --plain: believe clients in this network; may be given several times
    #[arg(long, value_name = "NET", requires = "plain")]
    pub from: Vec<Scope>,

    /// Where the keys are kept. Without this option: the state directory of whoever runs it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,

    /// Report on standard output as JSON, one object a line: where it listens, clients that come and go,
    /// connections that have ended
    #[arg(long)]
    pub json: bool,

    /// Errors only
    #[arg(short, long)]
    pub quiet: bool,
}

/// Take programs' connections to a server, over all links
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Take programs' connections to a server, over all links, until Ctrl-C.\n\n\
        A program is told at once that it is connected, and its first bytes travel together with the \
        request: that saves it two round trips. If the destination turns out to be out of reach, its \
        connection is reset. Programs that must know the reason want --strict-socks.\n\n\
        With --via the kernel is told which links to use, as long as this runs; that needs CAP_NET_ADMIN. \
        Without it: `sudo anabranch kernel setup` tells the kernel once.",
    after_help = "Examples:\n  \
        anabranch proxy client --server proxy.example --pair-file laptop.pair\n  \
        sudo anabranch proxy client --server proxy.example --pair-file laptop.pair --via wlan0 --via \
        wwan0:backup\n  \
        anabranch proxy client --server 192.168.7.1 --plain --http 127.0.0.1:8080"
)]
pub struct Client {
    /// The server. Without a port: 26228
    #[arg(short, long, value_name = "HOST:PORT", value_parser = server_address)]
    pub server: Destination,

    /// The line that `anabranch proxy pair` printed at the server. Others on this host can see it while this
    /// runs: --pair-file hides it
    #[arg(long, value_name = "LINE", conflicts_with_all = ["plain", "pair_file"])]
    pub pair: Option<String>,

    /// A file with that line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "plain")]
    #[arg(required_unless_present_any = ["plain", "pair"])]
    pub pair_file: Option<PathBuf>,

    /// Use this link; give it for each. `wwan0:backup` carries data only while no other can. `wwan0:cost=5`
    /// joins when the links that cost less are full or bad. `wwan0:cap=20GB/month` (or /week, /day) carries
    /// no more than that. Without this option: the links that the kernel knows
    #[arg(long, value_name = "IFACE[:HOW]")]
    pub via: Vec<Via>,

    /// Listen here for programs that speak SOCKS5; may be given several times. Without this option and
    /// --http: 127.0.0.1:1080
    #[arg(long, value_name = "ADDR:PORT")]
    pub socks: Vec<SocketAddr>,

    /// Listen here for programs that speak HTTP to a proxy; may be given several times
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Vec<SocketAddr>,

    /// Tell programs that they are connected when they are, with SOCKS's own errors if not. Costs a round
    /// trip
    #[arg(long)]
    pub strict_socks: bool,

    /// No encryption and no keys: the server was started with --plain too
    #[arg(long)]
    pub plain: bool,

    /// Serve programs that give this name and password only; may be given several times. Without this option:
    /// all that reach it
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = user)]
    pub user: Vec<(String, String)>,

    /// Report on standard output as JSON, one object a line: where it listens, connections to the server,
    /// programs' connections that have ended
    #[arg(long)]
    pub json: bool,

    /// Errors only
    #[arg(short, long)]
    pub quiet: bool,
}

/// Let a client in: make its key, and print the line that it needs
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Let a client in: make its key, and print the line that it needs.\n\n\
        Run it where the server runs, as the same user. The line is a secret: whoever has it can use this \
        server. It is let in at once, also if the server runs. To take a client off, delete its lines in \
        proxy-clients.toml.",
    after_help = "Examples:\n  \
        anabranch proxy pair --name laptop > laptop.pair\n  \
        ssh proxy.example anabranch proxy pair --name $(hostname) > server.pair"
)]
pub struct Pair {
    /// What the client is called in what the server reports
    #[arg(long, value_name = "NAME", default_value = "client")]
    pub name: String,

    /// Where the server keeps its keys. Without this option: the state directory of whoever runs it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let bare = text.trim_matches(['[', ']']).parse::<IpAddr>();
    bare.map(|ip| SocketAddr::new(ip, PORT)).map_err(|_| {
        format!("expected ADDR:PORT, such as 0.0.0.0:{PORT} or [::]:{PORT}; names are not looked up here")
    })
}

fn server_address(text: &str) -> Result<Destination, String> {
    let with_port = || format!("{text}:{PORT}").parse().ok();
    let bare = |text: &str| text.parse::<IpAddr>().ok().and_then(|ip| Destination::from_ip(ip, PORT).ok());
    let wrong = || format!("expected HOST:PORT or HOST, such as proxy.example or [2001:db8::1]:{PORT}");
    let destination = bare(text).or_else(|| text.parse().ok()).or_else(with_port);
    destination.ok_or_else(wrong)
}

fn user(text: &str) -> Result<(String, String), String> {
    let (name, password) = text.split_once(':').ok_or("expected NAME:PASSWORD")?;
    // RFC 1929: each has a length of one byte.
    if name.is_empty() || name.len() > 255 || password.is_empty() || password.len() > 255 {
        return Err("name and password have 1 to 255 bytes each".into());
    }
    Ok((name.to_owned(), password.to_owned()))
}
