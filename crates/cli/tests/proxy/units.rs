//! Test of the proxy's units of `contrib/` under their own systemd in namespaces: they start, work as users
//! without privileges, reload, come back after a kill, and leave nothing. It needs root, systemd and
//! overlayfs; without these, it says so and passes.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::geteuid;

const SYSTEMD: &str = "/lib/systemd/systemd";

/// Mounts an overlay of this host's root in which only our units are started, and starts systemd there. The
/// arguments are a directory, `contrib` and the program.
const BOOT: &str = r#"
set -e
cd "$1"
mount --make-rprivate /
mkdir layer && mount -t tmpfs tmpfs layer && mkdir layer/up layer/work layer/root
mount -t overlay overlay -o lowerdir=/,upperdir=layer/up,workdir=layer/work layer/root
R="$1/layer/root"
mount -t proc proc $R/proc
# Some of what is there is this host's.
mount --bind $R/proc/sys $R/proc/sys && mount -o remount,bind,ro $R/proc/sys
mount --rbind /dev $R/dev
mount -t sysfs sysfs $R/sys
mount -t cgroup2 cgroup2 $R/sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs $R/run
mount -t tmpfs tmpfs $R/tmp
mkdir $R/tmp/out && mount --bind "$1" $R/tmp/out
for place in lib usr/lib etc; do rm -rf $R/$place/systemd/system/*.target.wants; done
for name in anabranch anabranch-proxy; do
    touch $R/usr/local/bin/$name && mount --bind "${3%anabranch}$name" $R/usr/local/bin/$name
done
units=$R/etc/systemd/system
cp "$2"/anabranch-proxy-*.service $units
for role in client server; do
    mkdir $units/anabranch-proxy-$role.service.d
    printf '[Service]\nStandardOutput=append:/tmp/out/%s.log\nStandardError=append:/tmp/out/%s.log\n' \
        $role $role > $units/anabranch-proxy-$role.service.d/log.conf
done
printf '[Service]\nNetworkNamespacePath=/run/netns/cl\n' > $units/anabranch-proxy-client.service.d/net.conf
printf '[Unit]\nDefaultDependencies=no\nWants=inside.service\n' > $units/lab.target
cat > $units/inside.service <<'X'
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh /tmp/out/inside.sh
StandardOutput=append:/tmp/out/inside.log
StandardError=append:/tmp/out/inside.log
ExecStopPost=/bin/systemctl exit -ff
X
# As what is told in the units: pairing as the service's user.
cat > $units/pair.service <<'X'
[Service]
Type=oneshot
DynamicUser=yes
User=anabranch-proxy-server
StateDirectory=anabranch-proxy-server
ExecStart=anabranch proxy pair --name laptop
StandardOutput=file:/tmp/laptop.pair
X
ip link set lo up
mount --make-rshared $R
cd $R
touch "$1/booted"
exec env -i container=oci PATH="$PATH" chroot $R /lib/systemd/systemd --system --unit=lab.target \
    --show-status=false
"#;

/// The commands that run there. Each line of their output is a fact and its value.
const INSIDE: &str = r#"
in_client="ip netns exec cl"
says() { echo "$1: $(eval "$2" 2>&1 | tr '\n' ' ')"; }
is_active() { systemctl is-active anabranch-proxy-server anabranch-proxy-client; }
# Waits until a command succeeds.
until_so() {
    for _ in $(seq 100); do eval "$1" > /dev/null 2>&1 && return; sleep 0.1; done
    echo "never: $1"
}
has_endpoint() { ip -n cl mptcp endpoint | grep 192.168.7.2; }

says verify 'systemd-analyze verify --man=no /etc/systemd/system/anabranch-proxy-*.service'
mkdir -p /etc/anabranch
printf 'allow = ["127.0.0.1"]\nstatus = "127.0.0.1:9000"\n' > /etc/anabranch/proxy-server.toml
systemctl start anabranch-proxy-server
systemctl start pair
cp /tmp/laptop.pair /etc/anabranch/ && chmod 600 /etc/anabranch/laptop.pair
ip netns add cl
ip link add v0 netns cl type veth peer name v1
ip addr add 192.168.7.1/24 dev v1 && ip link set v1 up
ip -n cl addr add 192.168.7.2/24 dev v0 && ip -n cl link set v0 up && ip -n cl link set lo up
ip -n cl route add default via 192.168.7.1 dev v0
settings=/etc/anabranch/proxy-client.toml
printf 'server = "192.168.7.1"\nvia = ["v0"]\nsocks = ["127.0.0.1:1080"]\n' > $settings
if nft --version > /dev/null 2>&1; then
    printf 'transparent = ["127.0.0.1:1081"]\ninstall-rules = true\n' >> $settings
fi
systemctl start anabranch-proxy-client
until_so has_endpoint
says active is_active
fetch="$in_client curl -sS -m 20 -x socks5h://127.0.0.1:1080 http://127.0.0.1:9000/"
says fetched "$fetch | grep -c '<title>anabranch proxy</title>'"
says shown 'anabranch proxy status | grep -c "to 192.168.7.1\|server, process"'
echo 'idle-timeout = "77 s"' >> $settings
systemctl reload anabranch-proxy-client
until_so 'grep "reloaded: idle-timeout" /tmp/out/client.log'
if nft --version > /dev/null 2>&1; then until_so "$in_client nft list table inet anabranch_proxy"; fi
pid() { systemctl show -p MainPID --value anabranch-proxy-client; }
killed=$(pid)
systemctl kill -s KILL anabranch-proxy-client
until_so 'test $(pid) != 0 && test $(pid) != $killed'
until_so 'test $(grep -c "connected by" /tmp/out/client.log) -ge 3'
until_so has_endpoint
says again is_active
systemctl stop anabranch-proxy-client anabranch-proxy-server
says endpoints 'ip -n cl mptcp endpoint'
says rules 'ip -n cl rule | grep -c 192.168.7.2'
says tables "$in_client nft list tables 2> /dev/null"
says failed 'systemctl is-failed anabranch-proxy-server anabranch-proxy-client'
"#;

/// A control group for systemd, so that it does not see the processes of this host.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let of_groups = |fields: &Vec<&str>| {
            fields.iter().skip_while(|field| **field != "-").nth(1).is_some_and(|kind| *kind == "cgroup2")
        };
        let place = fields.into_iter().find(of_groups)?.get(4)?.to_owned();
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
        let group = Path::new(place).join(own).join(format!("anabranch-units-{}", std::process::id()));
        fs::create_dir(&group).ok()?;
        Some(Self(group))
    }

    fn remove(of: &Path) {
        let all = fs::read_dir(of).into_iter().flatten().filter_map(Result::ok);
        all.filter(|entry| entry.path().is_dir()).for_each(|entry| Self::remove(&entry.path()));
        let _ = fs::remove_dir(of);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        Self::remove(&self.0);
    }
}

#[test]
fn the_units_start_work_reload_and_leave_nothing() {
    if !geteuid().is_root() || !Path::new(SYSTEMD).exists() {
        return anabranch_net::testing::skip("the proxy's units: they want root and systemd");
    }
    let Some(group) = Group::new() else {
        return anabranch_net::testing::skip(
            "the proxy's units: there is no cgroup2 in which a group can be made",
        );
    };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("boot.sh"), BOOT).unwrap();
    fs::write(dir.join("inside.sh"), INSIDE).unwrap();
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    let mut boot = Command::new("sh");
    boot.args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""]).arg(&group.0);
    boot.args(["timeout", "-k", "5", "120", "unshare", "--fork", "--kill-child", "--pid", "--mount"]);
    boot.args(["--cgroup", "--uts", "--ipc", "--net", "sh"]).arg(dir.join("boot.sh"));
    let done = boot.arg(dir).arg(contrib).arg(crate::common::program()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let facts = fs::read_to_string(dir.join("inside.log")).unwrap_or_default();
    if !dir.join("booted").exists() || facts.is_empty() {
        return anabranch_net::testing::skip(format!(
            "the proxy's units: no systemd in namespaces: {}",
            said.trim()
        ));
    }
    let logs = ["server.log", "client.log"].map(|log| fs::read_to_string(dir.join(log)).unwrap_or_default());
    let all = format!("{facts}\n{}\n{}\n{said}", logs[0], logs[1]);
    for fact in [
        "verify: ",
        "active: active active ",
        "fetched: 1 ",
        "shown: 2 ",
        "again: active active ",
        "endpoints: ",
        "rules: 0 ",
        "tables: ",
        "failed: inactive inactive ",
    ] {
        assert!(facts.lines().any(|line| line == fact), "{fact}\n{all}");
    }
    assert!(!facts.contains("never: "), "{all}");
    assert!(!logs[1].contains("the kernel is not told"), "{all}");
}
