//! The settings of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::macros::settings;
use crate::config::{Bandwidth, ConfigError, ListenAddress, ServerAddress, Settings as _, TimeSpan, files};
use crate::egress;
use crate::flows::Timeouts;
use crate::policy::{Policy, Scope};
use crate::quota::UserLimits;
use crate::server::{Admission, Options, Scale};
use crate::socket::SocketOptions;

settings! {
    /// The settings of a server.
    Server {
        /// Address to listen on for clients. Port 0 takes a free one, and ADDR alone means port 26228. One
        /// address of several takes clients that come there only, but their other links may come to any
        "listen" listen: ListenAddress, "ADDR:PORT", Some("[::]:26228"), Restart;

        /// Allow destinations in this network (10.1.0.0/16, fd00::/8, 192.168.1.7), at this port only if one
        /// is given (10.1.0.0/16:22, [fd00::/8]:443, :443)
        "allow" allow: Vec<Scope>, "NET[:PORT]", None, Live;

        /// Refuse destinations in this network, at this port only if one is given
        "deny" deny: Vec<Scope>, "NET[:PORT]", None, Live;

        /// No encryption between client and server, and no keys: whoever is in a network of `from` may use
        /// this server, and whoever is between can read and change everything
        "plain" plain: bool, "", None, Restart;

        /// Of `plain`: believe clients in this network
        "from" from: Vec<Scope>, "NET", None, Restart;

        /// Where the keys are kept. Without it: the state directory of whoever runs it
        "state-dir" state_dir: PathBuf, "DIR", None, Restart;

        /// The congestion controller of connections to clients. Without it: the system's
        "congestion" congestion: String, "NAME", None, Restart;

        /// Serve a page that shows links and connections, and metrics for Prometheus, here. Both want the
        /// token of a file in the state directory, which is made
        "status" status: SocketAddr, "ADDR:PORT", None, Restart;

        /// A destination's name and connection together may take so long
        "connect-timeout" connect_timeout: TimeSpan, "TIME", Some("10 s"), Live;

        /// A client may take so long to show whose it is
        "handshake-timeout" handshake_timeout: TimeSpan, "TIME", Some("10 s"), Live;

        /// A connection on which nothing moves for so long is reset
        "idle-timeout" idle_timeout: TimeSpan, "TIME", Some("1 h"), Live;

        /// The same for one that one side has ended
        "half-closed-timeout" half_closed_timeout: TimeSpan, "TIME", Some("10 min"), Live;

        /// Connections that this server wants at most, of all clients together. It announces that, and
        /// clients of several servers go where there is room; none is refused. Without it: as many as there
        /// are descriptors for
        "capacity" capacity: u32, "N", None, Restart;

        /// Name this other server to clients, which use it too if they have its key
        "other-server" other_server: Vec<ServerAddress>, "HOST:PORT", None, Restart;

        /// Run this program when the load passes a threshold: its words are `above` or `below`, and how many
        /// connections are open and wanted. It is run again while the load stays there
        "scale-run" scale_run: PathBuf, "FILE", None, Restart;

        /// Of `scale-run`: the load from which it is run with `above`, in percent of the capacity
        "scale-above" scale_above: u32, "PERCENT", Some("80"), Restart;

        /// Of `scale-run`: the load down to which it is run with `below`, in percent of the capacity
        "scale-below" scale_below: u32, "PERCENT", Some("20"), Restart;

        /// Of `scale-run`: the time between two runs
        "scale-every" scale_every: TimeSpan, "TIME", Some("1 min"), Restart;

        /// Connections that a client may have at a time; more are refused
        "max-connections" max_connections: u32, "N", None, Live;

        /// Connections that a client may open in a second, on average over one; more are refused
        "max-new-connections" max_new_connections: u32, "N", None, Live;

        /// Rate of all connections and datagrams of a client together, in each direction: 500k, 2M, 20Mbit
        "max-rate" max_rate: Bandwidth, "RATE", None, Live;
    }
}

impl Server {
    /// Checks that the settings fit together. Reads and makes no files.
    ///
    /// # Errors
    /// If settings contradict each other or a needed one is missing; the error names the problem.
    pub fn check(&self) -> Result<(), ConfigError> {
        let is_plain = self.plain == Some(true);
        let networks = self.from.as_deref().unwrap_or_default();
        match (is_plain, networks.is_empty()) {
            (true, true) => {
                Err(ConfigError::new("`plain` wants to know whose clients are believed: say `from`"))
            }
            (false, false) => Err(ConfigError::new("`from` is for `plain` only: with keys, they decide")),
            (false, true) if self.state_dir.is_none() => {
                Err(ConfigError::new("there is no directory to keep keys in: say `state-dir`"))
            }
            _ => Ok(()),
        }
    }

    /// Converts the settings to options for [`crate::server::start`]. Reads the server's key, or makes one.
    ///
    /// # Errors
    /// If settings contradict each other, or if the key cannot be read or made.
    pub fn options(&self) -> Result<Options, ConfigError> {
        self.check()?;
        let all = self.clone().over(Self::defaults());
        let time = |time: Option<TimeSpan>| time.unwrap_or_default().0;
        let admission = match &all.state_dir {
            Some(dir) if all.plain != Some(true) => {
                let (pair, clients) = files::state(dir)?;
                Admission::Keys { pair, clients }
            }
            _ => Admission::Networks(all.from.unwrap_or_default()),
        };
        let mut options = Options::new(admission);
        options.listen = all.listen.map_or(options.listen, |listen| listen.0);
        options.policy = Policy::new(&all.allow.unwrap_or_default(), &all.deny.unwrap_or_default());
        options.egress = egress::Options { connect_timeout: time(all.connect_timeout), ..options.egress };
        options.socket = SocketOptions { congestion: all.congestion, ..options.socket };
        options.timeouts = Timeouts {
            handshake: time(all.handshake_timeout),
            idle: time(all.idle_timeout),
            half_closed: time(all.half_closed_timeout),
        };
        options.capacity = all.capacity;
        let (above, below) = (all.scale_above.unwrap_or_default(), all.scale_below.unwrap_or_default());
        if below >= above {
            return Err(ConfigError::new(
                "`scale-below` is less than `scale-above`: in between nothing is run",
            ));
        }
        options.scale = all.scale_run.map(|run| Scale { run, above, below, every: time(all.scale_every) });
        let others = all.other_server.unwrap_or_default();
        options.others = others.into_iter().map(|server| server.0).collect();
        options.client_limits = UserLimits {
            connections: all.max_connections,
            new_connections: all.max_new_connections,
            rate: all.max_rate.map(|rate| rate.0),
        };
        Ok(options)
    }
}
