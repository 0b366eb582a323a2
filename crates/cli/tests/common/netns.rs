//! Network namespaces for a test, joined by virtual Ethernet and removed when dropped. Needs root and
//! iproute2.

use std::path::Path;
use std::process::Command;

use super::fetch::{refused, skipped};
use super::{Server, anabranch};

/// Network namespaces. A test names each by a letter or a word; the system's name also has the process and
/// the test.
pub(crate) struct Net {
    label: String,
    names: Vec<&'static str>,
}

impl Net {
    /// Makes the namespaces. If that is impossible, prints a line that says why.
    pub(crate) fn new(test: &str, names: &[&'static str]) -> Option<Self> {
        let mut net = Self { label: format!("anabranch-{}-{test}", std::process::id()), names: Vec::new() };
        for name in names {
            let made = Command::new("ip").args(["netns", "add"]).arg(net.system_name(name)).output();
            if !made.as_ref().is_ok_and(|output| output.status.success()) {
                match made {
                    Err(e) => skipped(format!("{test}: network namespaces need iproute2 ({e})")),
                    Ok(output) => {
                        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
                        refused(format!("{test}: network namespaces need root ({said})"));
                    }
                }
                return None;
            }
            net.names.push(name);
            net.ip(name, "link set dev lo up");
        }
        Some(net)
    }

    fn system_name(&self, name: &str) -> String {
        format!("{}-{name}", self.label)
    }

    /// Runs `ip` with these arguments in a namespace.
    pub(crate) fn ip(&self, name: &str, arguments: &str) {
        let output =
            Command::new("ip").arg("-n").arg(self.system_name(name)).args(arguments.split(' ')).output();
        let output = output.expect("iproute2");
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes a link between two namespaces. Each end is (namespace, device, addresses with their prefixes).
    pub(crate) fn link(&self, mtu: u32, [here, there]: [(&str, &str, &[&str]); 2]) {
        let peer = self.system_name(there.0);
        self.ip(here.0, &format!("link add name {} type veth peer name {} netns {peer}", here.1, there.1));
        for (name, device, addresses) in [here, there] {
            for address in addresses {
                // Duplicate address detection is switched off, because it would take a second or two.
                let no_dad = if address.contains(':') { " nodad" } else { "" };
                self.ip(name, &format!("addr add {address} dev {device}{no_dad}"));
            }
            self.ip(name, &format!("link set dev {device} mtu {mtu} up"));
        }
    }

    /// Makes a namespace forward packets.
    pub(crate) fn route_between(&self, name: &str) {
        for knob in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            let mut set = self.run(name, &["sh", "-c", &format!("echo 1 > /proc/sys/{knob}")]);
            assert!(set.status().expect("a shell").success(), "{knob}");
        }
    }

    fn run(&self, name: &str, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.system_name(name)]).args(words);
        command
    }

    /// Wraps a command so that it runs in a namespace.
    pub(crate) fn inside(&self, name: &str, command: &Command) -> Command {
        let mut wrapped = self.run(name, &[]);
        wrapped.arg(command.get_program()).args(command.get_args()).stdin(std::process::Stdio::null());
        for (key, value) in command.get_envs() {
            if let Some(value) = value {
                wrapped.env(key, value);
            }
        }
        wrapped
    }

    /// Runs a source that serves `path` in a namespace.
    pub(crate) fn serve(&self, name: &str, path: &Path, more: &[&str]) -> Server {
        let mut command = anabranch();
        command.arg("serve").arg(path).args(["--json", "--no-cache"]).args(more);
        Server::run(self.inside(name, &command))
    }

    /// Returns the number of packets that the namespaces have fragmented, plus fragments that they have
    /// reassembled.
    pub(crate) fn fragments(&self) -> u64 {
        let count = |name: &&str| {
            let read = |file: &str| {
                let output = self.run(name, &["cat", &format!("/proc/net/{file}")]).output().expect("cat");
                String::from_utf8(output.stdout).expect("UTF-8")
            };
            let (v4, v6) = (read("snmp"), read("snmp6"));
            let mut lines = v4.lines().filter(|line| line.starts_with("Ip:"));
            let (heads, values) = (lines.next().expect("heads"), lines.next().expect("values"));
            let v4 = heads.split(' ').zip(values.split(' '));
            let v6 = v6.lines().filter_map(|line| line.split_once(char::is_whitespace));
            let wanted =
                ["FragCreates", "FragOKs", "ReasmReqds", "Ip6FragCreates", "Ip6FragOKs", "Ip6ReasmReqds"];
            let found = v4.chain(v6).filter(|(head, _)| wanted.contains(head));
            let numbers: Vec<u64> = found.map(|(_, n)| n.trim().parse().expect("a number")).collect();
            assert_eq!(numbers.len(), wanted.len(), "the kernel counts fragments");
            numbers.iter().sum::<u64>()
        };
        self.names.iter().map(count).sum()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del"]).arg(self.system_name(name)).status();
        }
    }
}
