//! The settings of a client.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::client::{Options, SERVERS_MAX, ServerName};
use crate::config::files::{read_secret, read_users};
use crate::config::macros::settings;
use crate::config::settings::{ConfigError, Settings as _};
use crate::config::value::{Bandwidth, Secret, TimeSpan, User};
use crate::event::Door;
use crate::flows::Timeouts;
use crate::ingress::Users;
use crate::keys::Pairing;
use crate::leg::Mode;
use crate::links::{self, Via};
use crate::quota::UserLimits;
use crate::socket::SocketOptions;
use crate::transport::Choice;

/// The address at which programs find the client if no other is set: the port of SOCKS (RFC 1928 section 3).
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1_080);

/// Returns the addresses at which a client listens, from the settings of each door.
fn doors(said: [(Door, Option<Vec<SocketAddr>>); 4]) -> Vec<(Door, SocketAddr)> {
    let is_said = said.iter().any(|(_, addresses)| addresses.is_some());
    let doors = said.into_iter().flat_map(|(door, all)| all.into_iter().flatten().map(move |at| (door, at)));
    if is_said { doors.collect() } else { vec![(Door::Programs, LISTEN)] }
}

/// Returns a server that is in the list twice.
fn twice(servers: &[ServerName]) -> Option<&ServerName> {
    servers.iter().enumerate().find(|(n, server)| servers[..*n].contains(server)).map(|(_, server)| server)
}

settings! {
    /// The settings of a client.
    Client {
        /// The server. Without a port: 26228. With several, each connection goes to the one that is nearest
        /// to it and its destination, and has room; see "Several servers". `srv:NAME` stands for the servers
        /// that DNS lists there (SRV, `_anabranch-proxy._tcp.NAME`)
        "server" server: Vec<ServerName>, "HOST:PORT|srv:NAME", None, Restart;

        /// The line that `anabranch proxy pair` printed at the server. As a flag, others on this host can see
        /// it while this runs: `pair-file` hides it
        "pair" pair: Secret, "LINE", None, Restart;

        /// A file with that line. With several servers, one for each, in their order; a server whose key is
        /// in none of them gets no connection
        "pair-file" pair_file: Vec<PathBuf>, "FILE", None, Restart;

        /// No encryption and no keys: the server was started with `plain` too
        "plain" plain: bool, "", None, Restart;

        /// Use this link, a network interface or a local address, and only links that are named; repeat the
        /// option for each. HOW sets conditions, with commas between them: `backup`, only while no other can
        /// carry data (get, proxy, kernel); `cost=5`, only while the cheaper ones are full or dead (get,
        /// proxy); `cap=20GB/month`, not when the interface has carried so much, both ways, in this day, week
        /// or month in UTC (get, proxy); `limit=5M`, no more than this over it (get). Without it: the MPTCP
        /// endpoints that the kernel has been told of (`anabranch kernel setup`); if there are none, one link
        "via" via: Vec<Via>, "IFACE|ADDR[:HOW,…]", None, Restart;

        /// Where the counts of links with a cap are kept. Without it: the state directory of whoever runs it
        "state-dir" state_dir: PathBuf, "DIR", None, Restart;

        /// Listen here for programs that speak SOCKS (4, 4A or 5) or HTTP to a proxy: one port for all, for
        /// the first byte tells them apart. Without it, `socks`, `http` and `transparent`: 127.0.0.1:1080
        "listen" listen: Vec<SocketAddr>, "ADDR:PORT", None, Restart;

        /// Listen here for programs that speak SOCKS5, and for no others
        "socks" socks: Vec<SocketAddr>, "ADDR:PORT", None, Restart;

        /// Listen here for programs that speak HTTP to a proxy, and for no others
        "http" http: Vec<SocketAddr>, "ADDR:PORT", None, Restart;

        /// Listen here for connections of programs that know nothing of a proxy: rules of nftables redirect
        /// them. An address that other hosts reach takes what they send through this host, too
        "transparent" transparent: Vec<SocketAddr>, "ADDR:PORT", None, Restart;

        /// Of `transparent`: set these rules, and remove them at the end. Without it `anabranch proxy rules`
        /// prints them
        "install-rules" install_rules: bool, "", None, Restart;

        /// Tell programs that they are connected when they are, with SOCKS's own errors if not. Costs a round
        /// trip
        "strict-socks" strict_socks: bool, "", None, Live;

        /// How programs' datagrams (SOCKS5's UDP) are spread over the links: over the best one, over the two
        /// best at once, or over all with their order restored
        "udp-mode" udp_mode: Mode, "best|duplicate|aggregate", Some("best"), Restart;

        /// What carries the connections to the server: the kernel's MPTCP (`kernel`), Multipath TCP of this
        /// program in UDP (`udp`), or what works: `auto` takes UDP if the kernel here, the one of the server
        /// or the path has no MPTCP, and there are several links without caps
        "transport" transport: Choice, "auto|kernel|udp", Some("auto"), Restart;

        /// Serve programs that give this name and password only. Without it and `user-file`: all that reach
        /// it
        "user" user: Vec<User>, "NAME:PASSWORD", None, Live;

        /// A file of such users, one a line
        "user-file" user_file: PathBuf, "FILE", None, Live;

        /// The congestion controller of connections to the server. Without it: the system's
        "congestion" congestion: String, "NAME", None, Restart;

        /// Serve a page that shows links and connections, and metrics for Prometheus, here. Both want the
        /// token of a file in the state directory, which is made
        "status" status: SocketAddr, "ADDR:PORT", None, Restart;

        /// A program may take so long to say where it wants to go
        "handshake-timeout" handshake_timeout: TimeSpan, "TIME", Some("30 s"), Live;

        /// A connection on which nothing moves for so long is reset
        "idle-timeout" idle_timeout: TimeSpan, "TIME", Some("1 h"), Live;

        /// The same for one that one side has ended
        "half-closed-timeout" half_closed_timeout: TimeSpan, "TIME", Some("10 min"), Live;

        /// Connections that a user may have at a time, programs that send datagrams among them; more are
        /// refused
        "max-connections" max_connections: u32, "N", None, Live;

        /// Connections that a user may open in a second, on average over one; more are refused
        "max-new-connections" max_new_connections: u32, "N", None, Live;

        /// Rate of all connections and datagrams of a user together, in each direction: 500k, 2M, 20Mbit
        "max-rate" max_rate: Bandwidth, "RATE", None, Live;
    }
}

impl Client {
    /// Checks that the settings fit together. Reads the files that they name.
    ///
    /// # Errors
    /// If settings contradict each other, or if a file cannot be read; the error names the problem.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.options().map(drop)
    }

    /// Reads the lines that pair this client.
    fn pairings(&self) -> Result<Vec<Pairing>, ConfigError> {
        let files = self.pair_file.clone().unwrap_or_default();
        let lines: Vec<(Option<PathBuf>, String)> = match (&self.pair, &files[..], self.plain == Some(true)) {
            (None, [], true) => Vec::new(),
            (Some(Secret(line)), [], false) => vec![(None, line.clone())],
            (None, [_, ..], false) => {
                let read = |path: &PathBuf| Ok((Some(path.clone()), read_secret(path)?));
                files.iter().map(read).collect::<Result<_, ConfigError>>()?
            }
            (None, [], false) => {
                return Err(ConfigError::new(
                    "whose key? Say `pair-file`, a file with the line that `anabranch proxy pair` prints at \
                     the server; or `plain`, without any protection",
                ));
            }
            _ => return Err(ConfigError::new("`pair`, `pair-file` and `plain` exclude each other")),
        };
        let pairing = |(file, line): (Option<PathBuf>, String)| {
            line.parse::<Pairing>().map_err(|e| ConfigError { file, ..ConfigError::new(format!("{e}")) })
        };
        let pairings: Vec<Pairing> = lines.into_iter().map(pairing).collect::<Result<_, _>>()?;
        if pairings.len() > SERVERS_MAX {
            return Err(ConfigError::new(format!("`pair-file` names more than {SERVERS_MAX} files")));
        }
        Ok(pairings)
    }

    /// Converts the settings to options for [`crate::client::start`].
    ///
    /// # Errors
    /// If settings contradict each other, or if a file cannot be read.
    pub fn options(&self) -> Result<Options, ConfigError> {
        let all = self.clone().over(Self::defaults());
        let time = |time: Option<TimeSpan>| time.unwrap_or_default().0;
        let servers = all.server.clone().unwrap_or_default();
        if servers.is_empty() {
            return Err(ConfigError::new("which server? Say `server`: its host, such as proxy.example"));
        }
        if servers.len() > SERVERS_MAX {
            return Err(ConfigError::new(format!("`server` names more than {SERVERS_MAX} servers")));
        }
        let pairings = all.pairings()?;
        if let Some(twice) = twice(&servers) {
            return Err(ConfigError::new(format!("`server` names {twice} twice")));
        }
        let mut users = all.user.unwrap_or_default();
        if let Some(path) = &all.user_file {
            users.extend(read_users(path)?);
            if users.is_empty() {
                let none = ConfigError::new("has no users: everybody would be one");
                return Err(ConfigError { file: Some(path.clone()), ..none });
            }
        }
        let mut options = Options { servers, pairings, ..Options::default() };
        options.via = all.via.unwrap_or_default();
        links::check(&options.via).map_err(|e| ConfigError::new(e.to_string()))?;
        options.transport = all.transport.unwrap_or_default();
        if options.transport == Choice::Udp && options.via.iter().any(|link| link.cap.is_some()) {
            return Err(ConfigError::new(
                "`cap` is kept with the kernel's MPTCP only, not with `transport` udp",
            ));
        }
        options.state_dir = all.state_dir;
        options.doors = doors([
            (Door::Programs, all.listen),
            (Door::Socks, all.socks),
            (Door::Http, all.http),
            (Door::Transparent, all.transparent),
        ]);
        options.installs_rules = all.install_rules == Some(true);
        let is_redirected = |(door, _): &(Door, SocketAddr)| *door == Door::Transparent;
        if options.installs_rules && !options.doors.iter().any(is_redirected) {
            return Err(ConfigError::new("`install-rules` is of `transparent`: say where to redirect to"));
        }
        options.users = Users::new(users.into_iter().map(|user| (user.name, user.password)));
        options.udp_mode = all.udp_mode.unwrap_or_default();
        options.is_strict = all.strict_socks == Some(true);
        options.socket = SocketOptions { congestion: all.congestion, ..options.socket };
        options.timeouts = Timeouts {
            handshake: time(all.handshake_timeout),
            idle: time(all.idle_timeout),
            half_closed: time(all.half_closed_timeout),
        };
        options.user_limits = UserLimits {
            connections: all.max_connections,
            new_connections: all.max_new_connections,
            rate: all.max_rate.map(|rate| rate.0),
        };
        Ok(options)
    }
}
