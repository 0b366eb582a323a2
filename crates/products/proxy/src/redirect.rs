//! Lets the client serve programs that know no proxy: the kernel redirects their connections.
//!
//! Rules of nftables rewrite the destination of each new TCP connection (NAT's `redirect`), and the client
//! asks the kernel for the original one (`SO_ORIGINAL_DST`). Exempt are the client's own connections to the
//! server, and networks that are not reached through it: loopback, private, link-local and multicast. nft(8)
//! sets the rules in a table with a fixed name, so that a new client replaces the rules of a client that was
//! killed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{Ip6tOriginalDst, OriginalDst};

use crate::trunk::Destination;

/// The name of the nftables table with the rules.
pub const TABLE: &str = "anabranch_proxy";

/// The time within which a listener of this host takes a connection.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// The most attempts to remove the rules.
const REMOVALS_MAX: usize = 3;

/// The IPv4 networks that programs reach without the server (RFC 6890): "this" network, private ones, shared
/// address space, loopback, link-local, multicast and reserved.
const EXEMPT_V4: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, \
                         192.168.0.0/16, 224.0.0.0/3";
/// The IPv6 networks that programs reach without the server: unspecified and loopback, unique local,
/// link-local, multicast.
const EXEMPT_V6: &str = "::/127, fc00::/7, fe80::/10, ff00::/8";

/// Returns the rules for nft(8). They redirect TCP connections of this host to the listeners of their family.
/// A listener at an address that other hosts reach also takes the connections that these hosts send through
/// this host. Connections to `servers` are not redirected.
#[must_use]
pub fn rules(listeners: &[SocketAddr], servers: &[SocketAddr]) -> String {
    let mut exempt = String::new();
    let mut set = |line: &str| {
        let _ = writeln!(exempt, "        {line} return");
    };
    for server in servers {
        let family = if server.is_ipv4() { "ip" } else { "ip6" };
        set(&format!("{family} daddr {} tcp dport {}", server.ip(), server.port()));
    }
    set(&format!("ip daddr {{ {EXEMPT_V4} }}"));
    set(&format!("ip6 daddr {{ {EXEMPT_V6} }}"));
    let redirect = |listeners: &mut dyn Iterator<Item = &SocketAddr>| {
        let lines = listeners.map(|listener| {
            let family = if listener.is_ipv4() { "ipv4" } else { "ipv6" };
            format!("        meta nfproto {family} meta l4proto tcp redirect to :{}\n", listener.port())
        });
        lines.collect::<String>()
    };
    let mut text = format!("table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n");
    let mut chain = |name: &str, hook: &str, listeners: &mut dyn Iterator<Item = &SocketAddr>| {
        let to = redirect(listeners);
        if !to.is_empty() {
            let _ = write!(
                text,
                "    chain {name} {{\n        type nat hook {hook} priority -100;\n{exempt}{to}    }}\n"
            );
        }
    };
    chain("own", "output", &mut listeners.iter());
    chain("forwarded", "prerouting", &mut listeners.iter().filter(|at| !at.ip().is_loopback()));
    text.push_str("}\n");
    text
}

/// Checks whether the rules could be set, without setting them.
///
/// # Errors
/// If nft is missing or fails, for example because the privilege is missing or the kernel has no nftables.
pub fn check(listeners: &[SocketAddr]) -> io::Result<()> {
    nft(&["--check"], &rules(listeners, &[]))
}

/// Sets the rules, and replaces existing ones.
///
/// # Errors
/// If nft is missing or fails, as in [`check`].
pub fn install(listeners: &[SocketAddr], servers: &[SocketAddr]) -> io::Result<()> {
    nft(&[], &rules(listeners, servers))
}

/// Keeps the rules set. Dropping it removes them, even if they are being set at that moment.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    is_over: Arc<Mutex<bool>>,
}

impl Installed {
    /// Returns a function that sets the rules on any thread. It does nothing once the rules were removed.
    pub(crate) fn setter(
        &self,
    ) -> impl FnOnce(&[SocketAddr], &[SocketAddr]) -> io::Result<()> + Send + use<> {
        let is_over = Arc::clone(&self.is_over);
        move |listeners, servers| {
            // The lock is held to the end, so that the rules are removed either before or after.
            let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
            if *is_over { Ok(()) } else { install(listeners, servers) }
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let mut is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        *is_over = true;
        // The table may not exist, so it is added before it is deleted.
        let text = format!("add table inet {TABLE}\ndelete table inet {TABLE}\n");
        // A signal to all processes of a service may also end the nft process, so this is repeated.
        let _ = (0..REMOVALS_MAX).any(|_| nft(&[], &text).is_ok());
    }
}

/// Describes rules that a killed client has left, if connections of programs go to a port without a listener.
/// Returns `None` if there are none, or if this process may not list them.
pub(crate) fn left_behind() -> Option<String> {
    let listed = Command::new("nft").args(["list", "table", "inet", TABLE]).output().ok()?;
    let ports = ports(&String::from_utf8_lossy(&listed.stdout));
    let nobody_listens = |port: &u16| {
        let here = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        !here
            .iter()
            .any(|ip| TcpStream::connect_timeout(&SocketAddr::new(*ip, *port), ANSWERS_WITHIN).is_ok())
    };
    let port = ports.into_iter().find(nobody_listens)?;
    Some(format!(
        "connections of programs are redirected to port {port}, where nobody listens: a client that was \
         killed has left its rules, and `nft delete table inet {TABLE}` removes them"
    ))
}

/// Returns the ports to which a table redirects, from the output of nft(8).
fn ports(listed: &str) -> BTreeSet<u16> {
    let after = listed.split("redirect to :").skip(1);
    after.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

fn nft(args: &[&str], text: &str) -> io::Result<()> {
    let command = Command::new("nft")
        .args(args)
        .args(["--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = command.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::other("the command nft is not there: install nftables"),
        _ => io::Error::new(e.kind(), format!("nft: {e}")),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // nft reports errors of the text itself.
        let _ = stdin.write_all(text.as_bytes());
    }
    let done = child.wait_with_output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    Err(io::Error::other(format!("nft: {}", first.trim())))
}

/// Returns the original destination of a connection that came to a listener at `local`.
///
/// # Errors
/// If the kernel does not know the original destination, or if it is the listener itself, because no rule
/// redirected the connection.
pub(crate) fn destination(tcp: &impl AsFd, local: SocketAddr) -> io::Result<Destination> {
    let wanted: SocketAddr = if local.ip().to_canonical().is_ipv4() {
        let address = getsockopt(tcp, OriginalDst)?;
        let ip = IpAddr::from(u32::from_be(address.sin_addr.s_addr).to_be_bytes());
        SocketAddr::new(ip, u16::from_be(address.sin_port))
    } else {
        let address = getsockopt(tcp, Ip6tOriginalDst)?;
        SocketAddr::new(IpAddr::from(address.sin6_addr.s6_addr), u16::from_be(address.sin6_port))
    };
    if wanted == SocketAddr::new(local.ip().to_canonical(), local.port()) {
        return Err(io::Error::other("no rule redirected it: set them by `install-rules`"));
    }
    Destination::from_ip(wanted.ip(), wanted.port()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_rules_are_those_to_which_they_redirect() {
        let all = rules(&["0.0.0.0:1081".parse().unwrap(), "[::1]:1082".parse().unwrap()], &[]);
        assert_eq!(ports(&all), BTreeSet::from([1081, 1082]));
        assert_eq!(ports("table inet x { }"), BTreeSet::new());
    }

    #[test]
    fn each_family_goes_to_its_listener_and_only_reachable_ones_take_the_traffic_of_others() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let own = rules(&[at("127.0.0.1:1081")], &[at("192.0.2.7:26228"), at("[2001:db8::7]:26228")]);
        for line in [
            "type nat hook output priority -100;",
            "ip daddr 192.0.2.7 tcp dport 26228 return",
            "ip6 daddr 2001:db8::7 tcp dport 26228 return",
            "meta nfproto ipv4 meta l4proto tcp redirect to :1081",
        ] {
            assert!(own.contains(line), "{line} in {own}");
        }
        assert!(!own.contains("nfproto ipv6") && !own.contains("prerouting"), "{own}");
        let all = rules(&[at("0.0.0.0:1081"), at("[::1]:1082")], &[]);
        let (own, forwarded) = all.split_once("chain forwarded").expect("both chains");
        assert!(
            own.contains("redirect to :1081")
                && own.contains("nfproto ipv6 meta l4proto tcp redirect to :1082")
        );
        assert!(forwarded.contains("redirect to :1081") && !forwarded.contains("1082"), "{forwarded}");
    }
}
