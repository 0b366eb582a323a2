//! The options of `anabranch forward`, `rendezvous` and `topology`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use anabranch_net::quantity;
use clap::{Args, ValueEnum, ValueHint};

use crate::metrics;
use crate::network_options::Network;

/// Forward packets between the lines of a node of a publish/subscribe network
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Forward packets between the lines of a node of a publish/subscribe network.\n\n\
        Packets say by which links they go, so a forwarder keeps nothing of any transfer. It drops what does \
        not come from a neighbour, what no topology manager can have made, and requests whose answers would \
        go to somebody else. It tells the topology manager which neighbours answer. Runs until Ctrl-C.",
    after_help = "Examples:\n  \
        anabranch forward --domain net.toml\n  \
        anabranch forward --domain net.toml --node r1 --cache 1GiB --json\n  \
        anabranch forward --domain net.toml --prometheus 9155"
)]
pub struct Forward {
    /// Keep packets that pass, so many bytes of them, and answer requests from there: 512M, 1GiB. Without
    /// this option: none
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache: Option<usize>,

    /// Which of them stay: those that were used last (lru), or of each MiB of a content the beginning (opc:
    /// its index is smaller; for receivers that use one path)
    #[arg(long, value_enum, default_value_t = CachePolicy::Lru, requires = "cache")]
    pub cache_policy: CachePolicy,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub member: Member,
}

/// Keep who publishes what in a publish/subscribe network, and tell those who ask
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Keep who publishes what in a publish/subscribe network, and tell those who ask.\n\n\
        A publication counts if the owner of its scope has signed it, and until its lease ends: publishers \
        renew it every 20 seconds. With --state a new start loses nothing. Without it all is known again \
        when publishers have renewed, and until then what was withdrawn may be published once more by \
        whoever has kept it. With --state redis://… several of them know the same. Runs until Ctrl-C.",
    after_help = "Examples:\n  \
        anabranch rendezvous --domain net.toml\n  \
        anabranch rendezvous --domain net.toml --state /var/lib/anabranch/net.redb\n  \
        anabranch rendezvous --domain net.toml --state redis://db.example:6379/0"
)]
pub struct Rendezvous {
    /// Keep what is known in this file too, which is made if it is not there: each publication is on the disk
    /// before its publisher is answered, and a new start takes all back. One process uses it at a time. Or
    /// redis://USER:PASSWORD@HOST:PORT/DB, keep it there alone, in a Redis (7.0 or later) or a Valkey that
    /// other rendezvous of the domain may share; also valkey://, rediss:// with TLS, redis+unix:///PATH.
    /// Others on this machine see a command line: ANABRANCH_STATE may say the same
    #[arg(long, value_name = "FILE|URL", value_hint = ValueHint::FilePath)]
    pub state: Option<OsString>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub member: Member,
}

/// Keep how the lines of a publish/subscribe network do, and hand out paths
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Keep how the lines of a publish/subscribe network do, and hand out paths.\n\n\
        Forwarders report which neighbours answer, and how long that takes. Receivers ask for paths to the \
        hosts that have a content, are told which of them share a link, and are told again when a line that \
        matters goes down or comes up. Runs until Ctrl-C.",
    after_help = "Example:\n  anabranch topology --domain net.toml"
)]
pub struct Topology {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub member: Member,
}

/// Which packets stay in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CachePolicy {
    /// Those that were used last.
    Lru,
    /// Of each segment of a content the beginning.
    Opc,
}

impl From<CachePolicy> for anabranch_network::CachePolicy {
    fn from(policy: CachePolicy) -> Self {
        match policy {
            CachePolicy::Lru => Self::Lru,
            CachePolicy::Opc => Self::Opc,
        }
    }
}

/// What all of them have.
#[derive(Args, Clone, Debug)]
pub struct Member {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub network: Network,

    /// The key of this member, in a domain with identifiers = "keyed": anabranch net keys makes those of all
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,

    /// Report on standard output as JSON, one object a line: counters every second
    #[arg(long)]
    pub json: bool,

    /// Serve http://ADDR:PORT/metrics for Prometheus as well; PORT alone means that of 127.0.0.1
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    pub prometheus: Option<SocketAddr>,

    /// No counters; only errors and what a person should know
    #[arg(short, long)]
    pub quiet: bool,
}

/// The smallest useful cache in bytes: a few segments.
const CACHE_BYTES_MIN: u64 = 4 << 20;

/// Parses a size as in scenarios; `B` may be left out.
fn size(text: &str) -> Result<usize, String> {
    match quantity::bytes(text).map(|bytes| bytes.round() as u64) {
        Some(bytes) if bytes >= CACHE_BYTES_MIN => {
            usize::try_from(bytes).map_err(|_| "out of range: more than this machine can address".into())
        }
        Some(_) => Err("out of range: 4 MiB is the least".into()),
        None => Err(format!("'{text}' is no size: a number with k, M, G, Ki, Mi or Gi behind it, as 512M")),
    }
}
