#!/usr/bin/env python3
"""Measures the server of `anabranch proxy` as a bare process, as a container and as a guest: one program, one set of words, one table.

    cargo build --release --target x86_64-unknown-linux-musl -p anabranch-cli --features proxy --bin anabranch-proxy
    cargo build --release -p anabranch-proxy --example load
    sudo python3 bench/proxy_units.py --bin target/x86_64-unknown-linux-musl/release/anabranch-proxy --load target/release/examples/load
    … --quick                      little of everything, nothing written: does it work?
    … --units process,container    some of the units
    … --draw                       measures nothing: makes the table again from bench/proxy_units.json

A unit has two links: to the hosts of programs, where one client of the proxy and the load are, and to the origins. It is

process    in a network namespace
container  an image from scratch with the static program alone, by crun or else runc: namespaces for processes, mounts, IPC, names
guest      a Debian kernel under QEMU (TCG, no KVM) with two virtio cards, made by contrib/guest.sh; READY on its console

each with the same limits of memory and in a control group of its own, whose CPU time is "host CPU of the whole unit". The delay S to
the origin is made by `anabranch lab` (--lab). The peer's columns are those of doi 10.1109/ICUFN.2017.7993881, figures 3 to 6 (other
machines: only the ratio of container and guest is comparable, and ours says TCG). Root, Linux with MPTCP; Python's standard library.
"""

import argparse
import atexit
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RAW = os.path.join(ROOT, "bench", "proxy_units.json")
PAGE = os.path.join(ROOT, "docs", "proxy.md")
TICKS = os.sysconf("SC_CLK_TCK")
UNITS = ["process", "container", "guest"]
UNIT_NEAR, UNIT_FAR = "10.80.0.254", "10.81.0.254"
ORIGINS, SPREAD, ROUTER, DELAYED = "10.81.0.1", 32, "10.81.0.99", "10.1.255.1"
#: Of the cards of each unit: the others know them already when the next unit comes.
MAC = "02:00:00:00:00:1{}"
PORT, SOCKS = 2_000, "127.0.0.1:1080"
WORDS = ["server", "--plain", "--quiet", "--listen", f"0.0.0.0:{PORT}", "--from", "10.80.0.0/24", "--allow", "10.81.0.0/24",
         "--allow", "10.1.0.0/16"]
#: Of the container and of the guest; a process that takes more is ended, too.
MEMORY_MIB = 512
SIZES = {"1 KB": (1_000, 1_000), "900 KB": (900_000, 200), "164 MB": (164_000_000, 5)}
AT_ONCE = [1_000, 2_000, 4_000, 10_000]
#: The paper's: 1 KB one after the other, and host CPU at as many at a time.
PAPER = {"container": {"sequential_ms": 125.5, 1_000: 25.0, 2_000: 31.9, 4_000: 37.0},
         "guest": {"sequential_ms": 131.4, 1_000: 26.0, 2_000: 36.9, 4_000: 48.9}}
READY_S = 90
#: The descriptors of each unit. A container may not raise what its parent has.
FILES = min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


class Missing(Exception):
    """What a unit needs is not here."""


def run(*argv, **how):
    done = subprocess.run(argv, check=False, capture_output=True, text=True, **how)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def end(child):
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def runtime():
    """The program that runs containers. crun takes no machine that has both versions of control groups."""
    names = ("crun", "runc") if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else ("runc",)
    return next((name for name in names if shutil.which(name)), None)


class Group:
    """A control group: what runs in it, and its CPU time. Version 2, or version 1 where that has the controllers."""

    def __init__(self, name):
        self.name, base = name, "/sys/fs/cgroup"
        if os.path.exists(f"{base}/cgroup.controllers"):
            self.paths = [f"{base}/{name}"]
            self.read = lambda: int(re.search(r"usage_usec (\d+)", self.text("cpu.stat")).group(1)) / 1e6
        elif os.path.isdir(f"{base}/cpuacct"):
            self.paths = [f"{base}/{kind}/{name}" for kind in ("cpuacct", "memory")]
            self.read = lambda: int(self.text("cpuacct.usage")) / 1e9
        else:
            raise Missing("control groups")
        for path in self.paths:
            os.makedirs(path, exist_ok=True)
        limit = f"{self.paths[-1]}/{'memory.limit_in_bytes' if len(self.paths) > 1 else 'memory.max'}"
        if os.path.exists(limit):
            with open(limit, "w", encoding="ascii") as out:
                # QEMU has some of its own.
                out.write(str((MEMORY_MIB + 256) << 20))

    def text(self, name):
        with open(f"{self.paths[0]}/{name}", encoding="ascii") as file:
            return file.read()

    def cpu_s(self):
        return self.read()

    def enter(self):
        for path in self.paths:
            with open(f"{path}/cgroup.procs", "w", encoding="ascii") as out:
                out.write(str(os.getpid()))

    def close(self):
        for path in self.paths:
            for _ in range(50):
                try:
                    os.rmdir(path)
                    break
                except OSError:
                    time.sleep(0.1)


class Ground:
    """The hosts: programs and the client on `near`, origins on `far`, the unit between them, two bridges on `hub`."""

    def __init__(self, options):
        self.options, self.scratch = options, tempfile.mkdtemp(prefix="anabranch-units-")
        self.children, self.spaces, self.groups, self.lab = [], [], [], None
        atexit.register(self.close)
        self.pid = os.getpid()
        for name in ("hub", "near", "far", "unit"):
            run("ip", "netns", "add", self.space(name))
            self.spaces.append(self.space(name))
            self.ip(name, "link set lo up")
            self.sysctl(name, "net.ipv4.ip_local_port_range=10000 65535", "net.core.somaxconn=16384",
                        "net.ipv4.tcp_max_syn_backlog=16384")
        for bridge in ("br0", "br1"):
            self.ip("hub", f"link add {bridge} type bridge")
            self.ip("hub", f"link set {bridge} up")
        self.cable("near", "eth0", "br0", ["10.80.0.1/24"])
        self.cable("far", "eth0", "br1", [f"10.81.0.{n}/24" for n in range(1, SPREAD + 1)])
        self.start("far", options.load, "origin", f"listen=0.0.0.0:{8080}", log="origin")

    def space(self, name):
        return f"au{os.getpid()}{name}"

    def ip(self, name, words):
        run("ip", "-n", self.space(name), *words.split())

    def sysctl(self, name, *settings):
        for setting in settings:
            subprocess.run(["ip", "netns", "exec", self.space(name), "sysctl", "-qw", setting], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def cable(self, name, device, bridge, addresses, mac=None):
        port = f"{name[:4]}{device[-1]}"
        self.ip("hub", f"link add {port} type veth peer name {device} netns {self.space(name)}")
        self.ip("hub", f"link set {port} master {bridge} up")
        if mac:
            self.ip(name, f"link set {device} address {mac}")
        for address in addresses:
            self.ip(name, f"address add {address} dev {device}")
        self.ip(name, f"link set {device} up")

    def command(self, name, *argv):
        """A command on a host, or outside of all of them if it has no name."""
        return ["ip", "netns", "exec", self.space(name), *argv] if name else list(argv)

    def start(self, name, *argv, log, group=None, **how):
        def before():
            os.setsid()
            resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
            if group:
                group.enter()

        with open(os.path.join(self.scratch, f"{log}.log"), "wb") as out:
            child = subprocess.Popen(self.command(name, *argv), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                     preexec_fn=before, **how)
        self.children.append(child)
        return child

    def said(self, log):
        with open(os.path.join(self.scratch, f"{log}.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def group(self, name):
        group = Group(f"anabranch-{os.getpid()}-{name}")
        self.groups.append(group)
        return group

    def delay(self, ms):
        """Puts an origin behind a link with this round trip; its address."""
        if not self.options.lab:
            raise Missing("anabranch lab (--lab)")
        path, name = os.path.join(self.scratch, "delay.toml"), f"units{os.getpid()}"
        with open(path, "w", encoding="ascii") as out:
            out.write('title = "units"\nduration = "60 s"\n[link.wide]\nrate = "1000 Mbit/s"\nqueue = "100 ms"\n[link.back]\n'
                      'rate = "1000 Mbit/s"\nqueue = "100 ms"\n[flow.o]\n'
                      f'paths = [{{ via = ["wide"], back = ["back"], rtt = "{ms} ms" }}]\n')
        run(self.options.lab, "lab", "up", path, "--name", name, "--seed", "1")
        self.lab = name

        def inside(host, *argv):
            return [self.options.lab, "lab", "exec", f"{name}/{host}", "--", *argv]

        sleeper = subprocess.Popen(inside("o.tx", "sleep", "100000"), start_new_session=True)
        self.children.append(sleeper)
        time.sleep(0.3)
        run("ip", "-n", self.space("hub"), "link", "add", "far1", "type", "veth", "peer", "name", "join", "netns", str(sleeper.pid))
        self.ip("hub", "link set far1 master br1 up")
        run(*inside("o.tx", "ip", "address", "add", f"{ROUTER}/24", "dev", "join"))
        run(*inside("o.tx", "ip", "link", "set", "join", "up"))
        run(*inside("o.tx", "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        run(*inside("o.rx", "ip", "route", "add", "10.81.0.0/24", "dev", "p0"))
        origin = subprocess.Popen(inside("o.rx", self.options.load, "origin", "listen=0.0.0.0:8080"), start_new_session=True,
                                  stdout=subprocess.DEVNULL)
        self.children.append(origin)
        time.sleep(0.5)
        return f"{DELAYED}:8080"

    def close(self):
        if os.getpid() != self.pid or not self.spaces:
            return
        for child in reversed(self.children):
            end(child)
        if self.lab:
            subprocess.run([self.options.lab, "lab", "down", self.lab], check=False, capture_output=True)
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, stderr=subprocess.DEVNULL)
        for group in self.groups:
            group.close()
        self.spaces = []
        shutil.rmtree(self.scratch, ignore_errors=True)


class Unit:
    """A running unit."""

    def __init__(self, ground, name):
        self.ground, self.name, self.group = ground, name, ground.group(name)
        self.child, self.runtime, self.started_s = None, None, None
        if name == "guest":
            self.make_guest()
        began = time.monotonic()
        try:
            getattr(self, name)()
            self.wait()
        except BaseException:
            self.close()
            raise
        self.started_s = time.monotonic() - began

    def network(self):
        for number, address in enumerate((UNIT_NEAR, UNIT_FAR)):
            self.ground.cable("unit", f"eth{number}", f"br{number}", [f"{address}/24"], MAC.format(number))
        self.ground.ip("unit", f"route add 10.1.0.0/16 via {ROUTER}")

    def process(self):
        self.network()
        self.child = self.ground.start("unit", self.ground.options.bin, *WORDS, log="process", group=self.group)

    def container(self):
        program = runtime()
        if not program:
            raise Missing("crun or runc")
        self.network()
        bundle = os.path.join(self.ground.scratch, "bundle")
        rootfs = os.path.join(bundle, "rootfs")
        for directory in ("proc", "tmp", "lib"):
            os.makedirs(os.path.join(rootfs, directory), exist_ok=True)
        shutil.copy(self.ground.options.bin, os.path.join(rootfs, "program"))
        # A static program needs none. One of the tests brings its libraries.
        for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", self.ground.options.bin], check=False, text=True,
                                                                 capture_output=True).stdout):
            os.makedirs(rootfs + os.path.dirname(library), exist_ok=True)
            shutil.copy(library, rootfs + library)
        spaces = [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]
        spaces.append({"type": "network", "path": f"/run/netns/{self.ground.space('unit')}"})
        config = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/program", *WORDS], "cwd": "/", "env": ["STATE_DIRECTORY=/tmp"],
                        "noNewPrivileges": True, "rlimits": [{"type": "RLIMIT_NOFILE", "hard": FILES, "soft": FILES}]},
            "root": {"path": "rootfs", "readonly": True},
            "hostname": "unit",
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "noexec", "mode=700"]}],
            "linux": {"namespaces": spaces, "cgroupsPath": f"/{self.group.name}",
                      "resources": {"memory": {"limit": (MEMORY_MIB + 256) << 20}}},
        }
        with open(os.path.join(bundle, "config.json"), "w", encoding="ascii") as out:
            json.dump(config, out)
        name = f"anabranch-{os.getpid()}"
        self.runtime = [program, *(["--cgroup-manager", "cgroupfs"] if program == "crun" else [])], name
        self.child = self.ground.start(None, *self.runtime[0], "run", "--bundle", bundle, name, log="container", group=self.group)

    def make_guest(self):
        if not shutil.which("qemu-system-x86_64") or not shutil.which("cpio") or not shutil.which("apt-get"):
            raise Missing("qemu-system-x86_64, cpio or apt-get")
        out = os.path.join(self.ground.scratch, "guest")
        if not os.path.exists(f"{out}/initrd"):
            run(os.path.join(ROOT, "contrib", "guest.sh"), self.ground.options.bin, out, *WORDS)

    def guest(self):
        out, cards = os.path.join(self.ground.scratch, "guest"), []
        for number in (0, 1):
            self.ground.ip("hub", f"tuntap add tap{number} mode tap")
            self.ground.ip("hub", f"link set tap{number} master br{number} up")
            cards += ["-netdev", f"tap,id=n{number},ifname=tap{number},script=no,downscript=no",
                      "-device", f"virtio-net-pci,netdev=n{number},mac={MAC.format(number)}"]
        words = f"console=ttyS0 quiet reboot=t panic=-1 ip0={UNIT_NEAR}/24 ip1={UNIT_FAR}/24 route=10.1.0.0/16,{ROUTER} listens={PORT}"
        self.child = self.ground.start(
            "hub", "qemu-system-x86_64", "-M", "pc", "-nodefaults", "-no-reboot", "-m", str(MEMORY_MIB), "-smp", str(os.cpu_count()),
            "-accel", "tcg", "-display", "none", "-serial", "stdio", "-kernel", f"{out}/vmlinuz", "-initrd", f"{out}/initrd",
            "-append", words, *cards, log="guest", group=self.group)

    def wait(self):
        """Waits until the unit is ready: somebody listens there."""
        for _ in range(READY_S * 20):
            if self.child.poll() is not None:
                raise RuntimeError(f"the {self.name} ended: {self.ground.said(self.name)[-500:]}")
            if self.name == "guest":
                ready = "READY" in self.ground.said("guest")
            else:
                ready = f":{PORT} " in run(*self.ground.command("unit", "ss", "-ltnH"))
            if ready:
                return
            time.sleep(0.05)
        raise RuntimeError(f"the {self.name} is not ready after {READY_S} s: {self.ground.said(self.name)[-500:]}")

    def close(self):
        if self.runtime:
            subprocess.run([*self.runtime[0], "kill", self.runtime[1], "KILL"], check=False, capture_output=True)
        if self.child:
            end(self.child)
        if self.runtime:
            subprocess.run([*self.runtime[0], "delete", "-f", self.runtime[1]], check=False, capture_output=True)
        for device in ("eth0", "eth1"):
            subprocess.run(["ip", "-n", self.ground.space("unit"), "link", "del", device], check=False, capture_output=True)
        for number in (0, 1):
            subprocess.run(["ip", "-n", self.ground.space("hub"), "link", "del", f"tap{number}"], check=False, capture_output=True)


def load(ground, unit, to, **more):
    """One load through the unit: what it says, and the unit's CPU time while it counted."""
    words = [ground.options.load, "get", f"to={to}", f"via={SOCKS}"] + [f"{key}={value}" for key, value in more.items()]
    busy = []
    began = time.monotonic()
    before, run_ = unit.group.cpu_s(), None
    child = subprocess.Popen(ground.command("near", *words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        for line in child.stdout:
            if line.startswith("{"):
                run_ = json.loads(line)
            else:
                busy.append((time.monotonic(), unit.group.cpu_s()))
        child.wait()
    finally:
        end(child)
    if not run_:
        raise RuntimeError(f"the load ended with status {child.returncode}")
    (start, cpu), (stop, then) = busy if len(busy) == 2 else ((began, before), (time.monotonic(), unit.group.cpu_s()))
    run_.update(cpu_s=then - cpu, wall_s=stop - start, cores=os.cpu_count())
    run_.pop("times_us", None)
    return run_


def measure(ground, name, delayed):
    """All rows of one unit."""
    options, found = ground.options, {}
    quick = options.quick
    unit = Unit(ground, name)
    client = None
    try:
        found["started_s"] = unit.started_s
        client = ground.start("near", options.bin, "client", "--plain", "--quiet", "--server", f"{UNIT_NEAR}:{PORT}",
                              "--socks", SOCKS, log="client", env={**os.environ, "STATE_DIRECTORY": ground.scratch})
        for _ in range(100):
            if SOCKS.split(":")[1] in run(*ground.command("near", "ss", "-ltnH")):
                break
            time.sleep(0.05)
        time.sleep(0.5)
        origin = f"{ORIGINS}:8080"
        load(ground, unit, origin, count=20, bytes=1_000)
        count = 100 if quick else 1_000
        for s_ms, to in (("0", origin), ("100", delayed)):
            if to:
                load(ground, unit, to, count=3, bytes=1_000)
                found[f"sequential {s_ms}"] = load(ground, unit, to, count=20 if quick and s_ms != "0" else count, bytes=1_000)
        for at_once in AT_ONCE[:1] if quick else AT_ONCE:
            found[f"at once {at_once}"] = load(ground, unit, origin, workers=at_once, bytes=1_000, spread=SPREAD, warm=1,
                                               seconds=1 if quick else 3)
        for size, (length, times) in list(SIZES.items())[:2] if quick else SIZES.items():
            found[size] = load(ground, unit, origin, bytes=length, count=max(1, times // 10) if quick else times)
    finally:
        if client:
            end(client)
        unit.close()
    return found


def ms(number):
    return f"{number / 1_000:.2f}" if number < 100_000 else f"{number / 1_000:.0f}"


def draw(raw):
    """The table in Markdown."""
    units = [name for name in UNITS if raw["units"].get(name, {}).get("rows")]
    runs = {name: raw["units"][name]["rows"] for name in units}
    shown = {"process": "process", "container": f"container ({raw.get('runtime', 'crun')})", "guest": "guest (QEMU, TCG)"}
    lines = ["| | " + " | ".join(shown[name] for name in units) + " | the paper: container, guest |",
             "| --- |" + " ---: |" * (len(units) + 1)]

    def row(title, cell, paper=""):
        lines.append(f"| {title} | " + " | ".join(cell(runs[name], name) for name in units) + f" | {paper} |")

    def of(rows, key, make):
        return make(rows[key]) if key in rows else "–"

    row("start to ready, s", lambda rows, _: f"{rows['started_s']:.2f}")
    for s_ms in ("0", "100"):
        key = f"sequential {s_ms}"
        row(f"1 KB × 1,000, S = {s_ms} ms: p50 / p99, ms", lambda rows, _, key=key: of(
            rows, key, lambda run: f"{ms(run['p50_us'])} / {ms(run['p99_us'])}"), "125.5, 131.4 (see above)" if s_ms == "100" else "")
        row("– CPU of the unit, µs a request", lambda rows, _, key=key: of(
            rows, key, lambda run: f"{1e6 * run['cpu_s'] / max(run['answered'], 1):.0f}"))
    for at_once in AT_ONCE:
        key = f"at once {at_once}"
        paper = ", ".join(f"{PAPER[name][at_once]} %" for name in ("container", "guest")) if at_once in PAPER["guest"] else "errors"
        row(f"{at_once:,} at a time: requests/s", lambda rows, _, key=key: of(
            rows, key, lambda run: f"{run['answered'] / run['wall_s']:,.0f}"))
        row("– CPU of the unit, µs a request", lambda rows, _, key=key: of(
            rows, key, lambda run: f"{1e6 * run['cpu_s'] / max(run['answered'], 1):.0f}"))
        row("– CPU of the unit, % of the host", lambda rows, _, key=key: of(
            rows, key, lambda run: f"{100 * run['cpu_s'] / run['wall_s'] / run['cores']:.0f}"), paper)
        row("– p50 / p99, ms; failed", lambda rows, _, key=key: of(
            rows, key, lambda run: f"{ms(run['p50_us'])} / {ms(run['p99_us'])}; {sum((run.get('failed') or {}).values())}"))
    for size in SIZES:
        row(f"{size}: KB/s; CPU of the unit, ms each", lambda rows, _, size=size: of(
            rows, size, lambda run: f"{run['bytes'] / run['wall_s'] / 1e3:,.0f}; {1e3 * run['cpu_s'] / max(run['answered'], 1):,.1f}"))
    verdicts = []
    if {"process", "container"} <= set(units):
        key = f"at once {AT_ONCE[0]}"
        cost = {name: runs[name][key]["cpu_s"] / max(runs[name][key]["answered"], 1) for name in ("process", "container")}
        ratio = cost["container"] / cost["process"]
        verdicts.append(f"* CPU of the container a request, {AT_ONCE[0]:,} at a time: {ratio:.2f} × the process (wanted: 1.05): "
                        f"{'ok' if ratio <= 1.05 else '**NOT**'}")
        keys = [f"at once {n}" for n in AT_ONCE]
        failed = sum(sum((runs[name][k].get("failed") or {}).values()) for name in ("process", "container") for k in keys if k in runs[name])
        verdicts.append(f"* process and container answer all up to {AT_ONCE[-1]:,} at a time: {'ok' if not failed else f'{failed} failed: **NOT**'}")
    for name in UNITS:
        if why := raw["units"].get(name, {}).get("missing"):
            verdicts.append(f"* {name}: not measured: {why}")
    notes = f"<sub>{raw['date']}; {raw['cores']} cores; Linux {raw['kernel']}; load average at its beginning {raw['load']:.1f}.</sub>"
    return "\n".join([*lines, "", *verdicts, "", notes])


def write(table):
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    start, stop = "<!-- table:units -->", "<!-- /table:units -->"
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(stop)
    with open(PAGE, "w", encoding="utf-8") as out:
        out.write(f"{before}{start}\n\n{table}\n\n{stop}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--bin", default=f"{target}/x86_64-unknown-linux-musl/release/anabranch-proxy", help="the program of all units")
    parser.add_argument("--load", default=f"{target}/release/examples/load", help="the load generator")
    parser.add_argument("--lab", default=shutil.which("anabranch") or f"{target}/debug/anabranch", help="anabranch, for the delay S")
    parser.add_argument("--units", default=",".join(UNITS), help="which units to measure")
    parser.add_argument("--quick", action="store_true", help="little of everything; nothing is written")
    parser.add_argument("--json", action="store_true", help="print the raw data as JSON instead of the table")
    parser.add_argument("--draw", action="store_true", help="make the table again from bench/proxy_units.json")
    options = parser.parse_args()
    if options.draw:
        with open(RAW, encoding="utf-8") as file:
            write(draw(json.load(file)))
        return 0
    if os.geteuid():
        print("root is needed, for namespaces and control groups", file=sys.stderr)
        return 1
    for path in (options.bin, options.load):
        if not os.path.exists(path):
            print(f"{path} is not there: the first lines of --help say how to build it", file=sys.stderr)
            return 1
    options.bin = os.path.abspath(options.bin)
    if not os.path.exists(options.lab):
        options.lab = None
    raw = {"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()[0],
           "runtime": runtime() or "none", "units": {}}
    ground = Ground(options)
    delayed = None
    try:
        delayed = ground.delay(100)
    except (Missing, RuntimeError, OSError) as why:
        print(f"without S = 100 ms: {why}", file=sys.stderr)
    for name in options.units.split(","):
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            raw["units"][name] = {"rows": measure(ground, name, delayed)}
        except Missing as why:
            raw["units"][name] = {"missing": f"{why} is not installed"}
    ground.close()
    if not options.quick:
        with open(RAW, "w", encoding="utf-8") as out:
            json.dump(raw, out, indent=1)
        write(draw(raw))
    print(json.dumps(raw) if options.json else draw(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
