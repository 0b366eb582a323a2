//! Declares the options of `anabranch tcp`.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anabranch_algo::control::{ALGORITHMS, Algorithm};
use anabranch_mptcp::{PathManager, SCHEDULERS, SchedulerKind};
use clap::{Args, Subcommand};

/// TCP and Multipath TCP of this process, on TUN devices
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Speak TCP and Multipath TCP from a stack of this process: standard input is sent, what \
        comes is written to standard output.\n\n\
        The stack is a host of its own behind one or more TUN devices, and the kernel is its first router. \
        Each --tun makes a device: the stack has one address on it, the kernel the other. So the peer may be \
        a program of this machine (it listens on the kernel's address), or any host that the kernel routes \
        to. It takes CAP_NET_ADMIN (root). The devices go when the command ends.\n\n\
        With two devices there are two paths: connections begin on the first and get a subflow over each of \
        the others. What this stack has and the kernel's lacks: coupled congestion control and schedulers to \
        choose from. Where a peer or a middlebox has no Multipath TCP, the connection goes on as plain TCP, \
        and that is said.",
    after_help = "Examples:\n  \
        sudo anabranch tcp connect --tun t1=10.77.1.2@10.77.1.1/24 --tun t2=10.77.2.2@10.77.2.1/24 \
        10.77.1.1:5000 < file\n  \
        sudo anabranch tcp listen --tun t1=10.77.1.2@10.77.1.1/24 5000 > file\n\n\
        To reach other hosts, let the kernel forward, and hide the stack's addresses behind its own:\n  \
        sysctl -w net.ipv4.ip_forward=1\n  \
        nft add table ip tcp; nft add chain ip tcp out '{ type nat hook postrouting priority 100; }'\n  \
        nft add rule ip tcp out ip saddr 10.77.0.0/16 masquerade"
)]
pub struct Tcp {
    /// Which end this is
    #[command(subcommand)]
    pub command: TcpCommand,
}

/// The two ends.
#[derive(Clone, Debug, Subcommand)]
pub enum TcpCommand {
    /// Connect, send standard input, and write what comes to standard output
    Connect {
        /// Address and port of the peer: 192.0.2.7:443, [2001:db8::7]:443
        #[arg(value_name = "ADDRESS:PORT")]
        peer: SocketAddr,
        #[command(flatten)]
        #[expect(missing_docs, reason = "clap would show it as the help of all")]
        stack: StackArgs,
    },
    /// Take one connection, send standard input, and write what comes to standard output
    Listen {
        /// The port
        #[arg(value_name = "PORT")]
        port: u16,
        #[command(flatten)]
        #[expect(missing_docs, reason = "clap would show it as the help of all")]
        stack: StackArgs,
    },
}

/// What both have.
#[derive(Args, Clone, Debug)]
pub struct StackArgs {
    /// A TUN device: its name, the stack's address and the kernel's with the length of their prefix; give it
    /// for each path
    #[arg(long, required = true, value_name = "NAME=ADDRESS@KERNEL/BITS")]
    pub tun: Vec<TunArg>,

    /// Plain TCP: offer and accept no Multipath TCP
    #[arg(long)]
    pub plain: bool,

    /// Ask for checksums of all data, which find middleboxes that change it
    #[arg(long)]
    pub checksums: bool,

    /// Congestion control: an algorithm that `anabranch get --help` lists under --cc
    #[arg(long, value_name = "NAME", default_value = "cubic-coupled", value_parser = algorithm)]
    pub cc: Algorithm,

    /// Which path carries what: minrtt, roundrobin, blest, ecf or redundant
    #[arg(long, value_name = "NAME", default_value = SCHEDULERS[0].name, value_parser = scheduler)]
    pub scheduler: SchedulerKind,

    /// Which subflows are made: fullmesh (from each address to each of the peer's), backup (the same, but all
    /// besides the first carry data only when no other can), default (none besides the first), or a number of
    /// them between the first two addresses
    #[arg(long, value_name = "NAME|N", default_value = "fullmesh", value_parser = path_manager)]
    pub path_manager: PathManager,

    /// Say nothing of subflows on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

/// Describes a TUN device that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunArg {
    /// The name of the device.
    pub name: String,
    /// The address of the stack.
    pub address: IpAddr,
    /// The address of the kernel.
    pub kernel: IpAddr,
    /// The length of their common prefix, in bits.
    pub prefix: u8,
}

impl FromStr for TunArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "a device is NAME=ADDRESS@KERNEL/BITS, as in t1=10.77.1.2@10.77.1.1/24".to_owned();
        let (name, rest) = text.split_once('=').ok_or_else(form)?;
        let (address, rest) = rest.split_once('@').ok_or_else(form)?;
        let (kernel, prefix) = rest.split_once('/').ok_or_else(form)?;
        let ip =
            |text: &str| text.parse::<IpAddr>().map_err(|_| format!("`{text}` is no address: {}", form()));
        let (address, kernel) = (ip(address)?, ip(kernel)?);
        if address.is_ipv4() != kernel.is_ipv4() {
            return Err(format!("{address} and {kernel} are of two kinds"));
        }
        if address == kernel {
            return Err(format!("the stack and the kernel can't both have {address}"));
        }
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse().ok().filter(|bits| *bits <= bits_max);
        let prefix = prefix.ok_or_else(|| format!("a prefix has 0 to {bits_max} bits"))?;
        Ok(Self { name: name.to_owned(), address, kernel, prefix })
    }
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    // Leave out algorithms with their own start: they need segments to be paced, and this stack does not pace
    // them.
    let mut rules = ALGORITHMS.iter().filter(|row| row.slow_start.is_some());
    let is_known = rules.any(|row| row.name == text);
    let algorithm = Algorithm::by_name(text).filter(|_| is_known);
    algorithm.ok_or_else(|| format!("there is no algorithm `{text}`"))
}

fn scheduler(text: &str) -> Result<SchedulerKind, String> {
    let names: Vec<_> = SCHEDULERS.iter().map(|row| row.name).collect();
    SchedulerKind::by_name(text).ok_or_else(|| format!("there are {}", names.join(", ")))
}

fn path_manager(text: &str) -> Result<PathManager, String> {
    let there_are = || format!("{}, or a number of subflows", PathManager::NAMES.join(", "));
    PathManager::by_name(text).ok_or_else(there_are)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read() {
        let tun: TunArg = "t1=10.77.1.2@10.77.1.1/24".parse().unwrap();
        assert_eq!((&*tun.name, tun.prefix, tun.kernel.to_string()), ("t1", 24, "10.77.1.1".to_owned()));
        let v6: TunArg = "t=fd00::2@fd00::1/64".parse().unwrap();
        assert_eq!(v6.address.to_string(), "fd00::2");
        for (wrong, why) in [
            ("t1", "NAME=ADDRESS"),
            ("t1=10.77.1.2", "NAME=ADDRESS"),
            ("t1=10.77.1.2@x/24", "`x` is no address"),
            ("t1=10.77.1.2@fd00::1/24", "two kinds"),
            ("t1=10.77.1.2@10.77.1.2/24", "both"),
            ("t1=10.77.1.2@10.77.1.1/33", "0 to 32"),
        ] {
            let error = wrong.parse::<TunArg>().unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
