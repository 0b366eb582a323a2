//! The options of `anabranch lab`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use anabranch_lab::domain::study::DRAWS_MAX;
use anabranch_lab::scenario::check::SEEDS_MAX;
use anabranch_lab::sweep::pool::THREADS_MAX;
use anabranch_lab::sweep::{Axis, Shard};
use clap::{Args, Subcommand, ValueEnum, ValueHint};

/// Run experiments, simulated or in the kernel: tables beside what papers report
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Run experiments: simulated networks, many seeds, tables beside what papers report.\n\n\
        A scenario is a TOML file: links, flows, what goes wrong, what is measured, and what must have \
        happened for the measurement to count. Each of its cases runs with each congestion controller and \
        seed; the same seed gives the same run, on any machine and any number of cores.",
    after_help = "Examples:\n  \
        anabranch lab list\n  \
        anabranch lab run bench-a\n  \
        anabranch lab new my && anabranch lab run my\n  \
        anabranch lab run scenarios/*.toml --json > rows.jsonl\n  \
        anabranch lab sweep bench-grid --set 'duration=300 s,600 s' --out grid.jsonl",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Lab {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// The commands of the laboratory.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    List(List),
    New(New),
    Run(Run),
    Sweep(Sweep),
    Domain(Domain),
    TailLoss(TailLoss),
    Latency(Latency),
    Cdn(Cdn),
    #[cfg(target_os = "linux")]
    Drive(Drive),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    DrivePart(DrivePart),
    #[cfg(target_os = "linux")]
    Up(Up),
    #[cfg(target_os = "linux")]
    Exec(Exec),
    #[cfg(target_os = "linux")]
    Status(Status),
    #[cfg(target_os = "linux")]
    Down(Down),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Hold(Hold),
}

/// List the scenarios that there are
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "List the scenarios that there are: those in scenarios/, if there is such a directory, and \
        those that are part of this program.",
    after_help = "Examples:\n  \
    anabranch lab list\n  \
    anabranch lab list my-scenarios\n  \
    anabranch lab list --json | jq -r .title"
)]
pub struct List {
    /// Only the .toml files in this directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,

    /// One JSON object a scenario
    #[arg(long)]
    pub json: bool,
}

/// Write a scenario to begin with, with comments
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Write a scenario to begin with, with comments. It runs as it stands; a file that exists is \
        not overwritten.",
    after_help = "Examples:\n  \
    anabranch lab new my && anabranch lab run my\n  \
    anabranch lab new my --from bench-a"
)]
pub struct New {
    /// Its file; NAME alone means NAME.toml
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// A copy of this one of the program's own scenarios instead
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
}

/// Which runs, and how the table is printed.
#[derive(Args, Clone, Debug)]
pub struct Choice {
    /// Seeds: 1..30, or 30 for the same; 7..7 is seed 7 alone. Without this option: as the scenario says
    #[arg(long, value_name = "A..B|N", value_parser = seeds)]
    pub seeds: Option<RangeInclusive<u64>>,

    /// Congestion controllers to compare, separated by commas. Without this option: as the scenario says
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = controller)]
    pub cc: Vec<String>,

    /// Only this case, and those that it is compared with
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,

    /// So many runs at the same time. Without this option: one a core; in the kernel as many as the emulated
    /// links bear without being late
    #[arg(short, long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,

    /// The table as JSON, one object a row, one row a line
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// The table as comma-separated values
    #[arg(long)]
    pub csv: bool,

    /// Write a page with tables and plots too, which needs nothing but a browser
    #[arg(long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    /// Write goodput, windows and queues over time of every run as comma-separated values
    #[arg(long, value_name = "FILE.csv", value_hint = ValueHint::FilePath)]
    pub series: Option<PathBuf>,

    /// Repeat a run in the kernel up to so many times if the emulated links were late
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=100))]
    pub retry: u32,

    /// Where it runs; several, separated by commas, stand side by side in the table
    #[arg(long, value_enum, value_name = "WORLD,...", value_delimiter = ',', default_value = "sim")]
    pub world: Vec<World>,
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum World {
    /// In the simulator, in virtual time
    Sim,
    /// Through this kernel's TCP and MPTCP, over emulated links, in real time; as root
    Kernel,
}

impl From<World> for anabranch_lab::World {
    fn from(world: World) -> Self {
        match world {
            World::Sim => Self::Sim,
            World::Kernel => Self::Kernel,
        }
    }
}

/// Run scenarios and print their tables
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Run scenarios and print their tables.\n\n\
        Each case runs with each controller and each seed. A row is a mean over the seeds with its 95 % \
        confidence interval, beside what the paper reports and what a model gives. A run whose conditions \
        were not met does not count, and is named. The exit status is 7 if there is such a run, or a value \
        that is not where the scenario expects it, or whose interval is too wide to say so (`?`).",
    after_help = "Examples:\n  \
        anabranch lab run bench-a\n  \
        anabranch lab run bench-a.toml bench-b.toml --seeds 1..3 --cc nmcc,reno\n  \
        anabranch lab run bench-a --set 'link.bottleneck.rate=50 Mbit/s' --report a.html\n  \
        anabranch lab run fig-4-9 --case worst --json\n  \
        sudo anabranch lab run convergence-shared --world sim,kernel --report shared.html\n  \
        anabranch lab run --all --save\n  \
        anabranch lab run - < my.toml"
)]
pub struct Run {
    /// Scenario files; NAME alone means NAME.toml here or in scenarios/, or else the program's own of this
    /// name, and - standard input
    #[arg(required_unless_present = "all", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// Every scenario in the directory scenarios/
    #[arg(long, conflicts_with = "files")]
    pub all: bool,

    /// Give a key of the scenario another value, in every case; may be given several times:
    /// 'link.c.rate=250 pkt/s', flow.mp.paths.0.rtt='20 ms', flow.sp.count=4
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = Axis::one)]
    pub sets: Vec<Axis>,

    /// Which runs, and how.
    #[command(flatten)]
    pub choice: Choice,

    /// Write the table beside the scenario, as NAME.table
    #[arg(long, conflicts_with_all = ["sets", "cc", "case"])]
    pub save: bool,
}

/// Run a scenario for many values and seeds, on all cores, into a file that can be resumed
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Run a scenario for many values and seeds, on all cores, into a file that can be \
        resumed.\n\n\
        Every combination of the values runs, in every case, with every controller and seed. With --out, \
        each run becomes a line of JSON as soon as it ends, and what is there already is not run again: the \
        same command resumes after Ctrl-C. A line is known by the scenario's contents, controller, seed and \
        the version of this program. --shard runs a part, for schedulers that spread work over machines; \
        shards may write to one file or to several that are concatenated later. At the end: the table of \
        all that is there.",
    after_help = "Examples:\n  \
        anabranch lab sweep bench-a --seeds 1..100 --out a.jsonl\n  \
        anabranch lab sweep bench-grid --set 'duration=300 s,600 s' --seeds 1..30\n  \
        anabranch lab sweep big --seeds 1..1000 --out big-$N.jsonl --shard $N/16"
)]
pub struct Sweep {
    /// The scenario; NAME alone means NAME.toml here or in scenarios/, or else the program's own of this
    /// name, and - standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// A key of the scenario and the values that it takes in turn; may be given several times. Commas
    /// separate values unless they are in quotes or brackets or behind a backslash
    #[arg(long = "set", value_name = "KEY=A,B,...", value_parser = Axis::many)]
    pub sets: Vec<Axis>,

    /// Which runs, and how.
    #[command(flatten)]
    pub choice: Choice,

    /// Append each run to this file as JSON, and skip those that are in it
    #[arg(short, long, value_name = "FILE.jsonl", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,

    /// Only part I of N, counted from 1
    #[arg(long, value_name = "I/N", value_parser = Shard::parse, requires = "out")]
    pub shard: Option<Shard>,
}

/// Study whole networks: what many users of one get, by a fluid model (Fig. 4.16, 4.17)
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Study whole networks: what many users of one get, by a fluid model.\n\n\
        The domain-scale study of the dissertation (section 4.2.3, figures 4.16 and 4.17): in each of 15 \
        networks clients at the access nodes fetch from servers inside, over one, two or three paths, with \
        and without a topology manager that tells which of them share a link. Each draw places servers, \
        second links and delays anew. The rates are those of the steady state; docs/domain-scale.md has the \
        model, and its error against the packet simulator.",
    after_help = "Examples:\n  \
        anabranch lab domain\n  \
        anabranch lab domain --network Geant2012 --draws 1000\n  \
        anabranch lab domain --json | jq -c 'select(.event == \"gain\" and .network == null)'\n  \
        anabranch lab domain --report domain-scale.md"
)]
pub struct Domain {
    /// Draws of each network
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=DRAWS_MAX))]
    pub draws: u64,

    /// The seed of everything that is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Only these networks, separated by commas: names, or files in GML, GraphML or our own form
    #[arg(long, value_name = "NAME|FILE,...", value_delimiter = ',')]
    pub network: Vec<String>,

    /// What every queue holds, packets of 1500 bytes. Without this option: 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queue: Option<u32>,

    /// So many draws at the same time. Without this option: one a core
    #[arg(short, long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,

    /// One JSON object a setting of figure 4.16, then one a network, capacity and policy of figure 4.17
    #[arg(long)]
    pub json: bool,

    /// Write a page in Markdown too, with the dissertation's averages, longer queues, and packets. It takes
    /// minutes
    #[arg(long, value_name = "FILE.md", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    /// Draws of each network that the page has from the packet simulator
    #[arg(long, value_name = "N", default_value_t = 3, requires = "report")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=DRAWS_MAX))]
    pub packet_draws: u64,
}

/// Measure bursts whose end is lost, by the policy of the tail-loss probe
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Measure bursts whose end is lost, by the policy of the tail-loss probe: none, on the same \
        path, on the other path too, and as Linux. Multipath TCP of this project's stack, two paths, in \
        virtual time; docs/measurements/tail-loss.md has the grid and the results.",
    after_help = "Examples:\n  \
        anabranch lab tail-loss\n  \
        anabranch lab tail-loss --json | jq -c 'select(.probe_lost and .segments == 10)'\n  \
        anabranch lab tail-loss --report docs/measurements/tail-loss.md"
)]
pub struct TailLoss {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub study: StudyArgs,
}

// How a study runs, and what is shown of it.
#[expect(missing_docs, reason = "clap would show it as the help of all")]
#[derive(Args, Clone, Debug)]
pub struct StudyArgs {
    /// So many runs at the same time. Without this option: one a core
    #[arg(short, long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,

    /// One JSON object a line of results
    #[arg(long)]
    pub json: bool,

    /// Write a page in Markdown too, and its figure beside it, as FILE.svg
    #[arg(long, value_name = "FILE.md", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
}

/// Measure the latency of video, games and web pages over two paths
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Measure the latency of video, games and web pages over two paths: TCP over each, and \
        Multipath TCP over both with each scheduler, with and without background traffic, in virtual time. \
        It takes minutes; docs/measurements/latency.md has the results.",
    after_help = "Examples:\n  \
        anabranch lab latency --seeds 1\n  \
        anabranch lab latency --json | jq -c 'select(.stream == \"video\")'\n  \
        anabranch lab latency --report docs/measurements/latency.md"
)]
pub struct Latency {
    /// Runs of each workload, bed and transport
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub study: StudyArgs,
}

/// Measure where caches pay: caches that boot when they are asked for, and where the next ones should be
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Measure where caches pay.\n\n\
        Without --demand: the study of ephemeral caches, which boot when a network first asks for something, \
        beside caches that stand in 20 to 100 % of the access networks. It simulates 100,000 to 160,000 \
        streams over a graph of autonomous systems, at the level of flows; it takes minutes for each seed. \
        docs/measurements/cdn.md has the results.\n\n\
        With --demand, --links and --origin: says where the next caches of a network should be, and what \
        each one brings. docs/cdn.md has the forms of the files.",
    after_help = "Examples:\n  \
        anabranch lab cdn --seeds 2\n  \
        anabranch lab cdn --links 20161101.as-rel.txt --roles as2types.txt --seeds 1\n  \
        anabranch lab cdn --report docs/measurements/cdn.md\n  \
        anabranch lab cdn --links links.txt --demand demand.txt --origin Oslo --caches 3"
)]
pub struct Cdn {
    /// Inputs of the study, in TOML: network, capacities, demand, player, caches
    #[arg(long, value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    pub plan: Option<PathBuf>,

    /// Seeds of the study, each a network and its requests
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,

    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Lines between networks or places: `A|B|-1` as CAIDA's, or `A B 10G`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub links: Option<PathBuf>,

    /// What the places are: `A content`, `A access`, `A transit`, or CAIDA's as2types
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "links")]
    pub roles: Option<PathBuf>,

    /// Places with viewers, for the question where caches should be: `PLACE STREAMS RATE`, as `Oslo 200 5M`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["links", "origin"])]
    pub demand: Option<PathBuf>,

    /// The place of the origin server
    #[arg(long, value_name = "PLACE", requires = "demand")]
    pub origin: Option<String>,

    /// So many caches at most. Without this option: one
    #[arg(long, value_name = "N", requires = "demand")]
    pub caches: Option<usize>,

    /// Where a cache may be, a place in each line. Without this option: every place with viewers
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "demand")]
    pub sites: Option<PathBuf>,

    /// Prefixes and the networks that announce them, so that the demand may have addresses: as CAIDA's pfx2as
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "demand")]
    pub prefixes: Option<PathBuf>,

    /// Part of the streams that a cache serves by itself; the origin serves the rest. Without this option: 90
    #[arg(long, value_name = "PERCENT", requires = "demand", value_parser = percent)]
    pub hits: Option<f64>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub study: StudyArgs,
}

/// Run real programs through many networks, interfaces and transports, and draw a page of results; as root
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Run real programs through many networks, interfaces and transports, and draw a page of \
        results; as root.\n\n\
        A plan is a TOML file: profiles (web pages, uploads, a video, a call, any command), transports (tcp, \
        mptcp, the proxy over either kind of MPTCP), interfaces, default routes and networks. Each test has \
        hosts of its own, with emulated links, captures at both ends and a watchdog. The tests run in an \
        order that the seed decides; results are written after each, and the same command resumes. The exit \
        status is 7 if a test failed, or if a number is not where the plan expects it; docs/drive.md has the \
        rest.",
    after_help = "Examples:\n  \
        anabranch lab drive phone --list\n  \
        sudo anabranch lab drive quick --out quick\n  \
        sudo anabranch lab drive my.toml --out night --only upload/mptcp"
)]
pub struct Drive {
    /// The plan; NAME alone means NAME.toml here, or else the program's own of this name: phone, quick
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,

    /// Where results and the page go. Without this option: a directory named as the plan
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    /// Only tests whose name has this in it, as `upload/mptcp`; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,

    /// List the tests and what the rules leave out, and run nothing
    #[arg(long)]
    pub list: bool,

    /// One JSON object a test, then one with all sums
    #[arg(long)]
    pub json: bool,
}

/// A server or a program of a test of `drive`
#[derive(Args, Clone, Debug)]
pub struct DrivePart {
    /// Which
    #[arg(value_enum)]
    pub part: Part,

    /// The server's address
    #[arg(long, value_name = "ADDRESS")]
    pub at: SocketAddr,

    /// The files that the server has
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub files: PathBuf,

    /// How long it takes
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub seconds: f64,

    /// The rate of a video
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub bytes_per_s: u64,

    /// Opens sockets of Multipath TCP
    #[arg(long)]
    pub mptcp: bool,

    /// Goes through this SOCKS5 proxy
    #[arg(long, value_name = "ADDRESS")]
    pub socks: Option<SocketAddr>,
}

/// The parts of a test that are this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The web server and the echoes
    Serve,
    /// Small messages
    Chat,
    /// A video player
    Video,
    /// A call by UDP
    Call,
}

/// Make a scenario's hosts and links in this kernel, for any program; as root
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Make a scenario's hosts and links in this kernel, for any program; as root.\n\n\
        Every flow F of the scenario gets two hosts, F.tx and F.rx, network namespaces with the kernel's own \
        TCP and MPTCP, and its paths between them are the scenario's links in real time: rate, delay, queue, \
        loss, traces, shared media. The flows themselves are not started (so those of mmTP are hosts like \
        any others), nor do faults happen. A process in \
        the background holds all of it, and when that ends, all of it is gone but the hosts of programs that \
        still run; `lab down` ends those too.",
    after_help = "Examples:\n  \
        anabranch lab up bench-a\n  \
        anabranch lab up my.toml --set 'link.wifi.loss=0.01'\n  \
        anabranch lab exec mp.rx -- mptcpize run iperf3 -s -1 &\n  \
        anabranch lab exec mp.tx -- mptcpize run iperf3 -c 10.1.255.1\n  \
        anabranch lab down"
)]
pub struct Up {
    /// The scenario; NAME alone means NAME.toml here or in scenarios/, or else the program's own of this
    /// name, and - standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Give a key of the scenario another value; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = Axis::one)]
    pub sets: Vec<Axis>,

    /// The case. Without this option: the first, and it says which that is
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,

    /// The seed of everything that is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// What it is called. Without this option: as the file
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Run a program on a host that `up` made
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Run a program on a host that `up` made.\n\n\
        The program replaces this one, so its exit status is that of the command: 127 if there is no such \
        program, 126 if it cannot be executed, as shells have it. It finds the name of its host in \
        ANABRANCH_HOST and the address of the host at the other end in ANABRANCH_PEER.",
    after_help = "Examples:\n  \
        anabranch lab exec mp.tx -- ping -c 3 10.1.255.1\n  \
        anabranch lab exec bench-a/sp.rx -- bash"
)]
pub struct Exec {
    /// The host; LAB/HOST if several laboratories have one of this name
    #[arg(value_name = "HOST")]
    pub host: String,

    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<std::ffi::OsString>,
}

/// Tell what is up and how its links do
#[derive(Args, Clone, Debug)]
pub struct Status {
    /// One JSON object a laboratory
    #[arg(long)]
    pub json: bool,
}

/// Take down what `up` made, and tell how its links did
#[derive(Args, Clone, Debug)]
#[command(long_about = "Take down what `up` made, and tell how its links did.\n\n\
        Programs that still run on its hosts are ended, and named: they are asked (SIGTERM), and after a \
        second made to (SIGKILL). That works too where the process that held it was killed.")]
pub struct Down {
    /// Its name, or its scenario's file. Without it: the only one
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
#[derive(Args, Clone, Debug)]
pub struct Hold {
    /// What it is called
    pub name: String,

    /// The seed of everything that is left to chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    anabranch_lab::sweep::seeds(text, SEEDS_MAX)
}

fn controller(name: &str) -> Result<String, String> {
    anabranch_lab::Controllers::default().check(name).map(|()| name.into())
}

fn jobs(text: &str) -> Result<usize, String> {
    let jobs = text.parse().ok().filter(|jobs| (1..=THREADS_MAX).contains(jobs));
    jobs.ok_or_else(|| format!("a number from 1 to {THREADS_MAX}"))
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "a part in percent, 0 to 100".into())
}
