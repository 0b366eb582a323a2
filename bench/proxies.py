"""The proxies that are measured: how each starts, and what it takes of the machine."""

import os
import shutil
import subprocess
import time

import testbed

#: Between two processes of ours, and so much more than the client's port.
MIDDLE_PORTS = 3_000
DANTE = """errorlog: stderr
internal: {address} port = {port}
external: {external}
socksmethod: none
clientmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
"""
HEV = """main:
  workers: 2
  port: {port}
  listen-address: '{address}'
misc:
  limit-nofile: 65535
"""


def tree(root):
    """A process and all that it has forked."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                parents.setdefault(int(stat.read().rpartition(")")[2].split()[1]), []).append(int(pid))
        except OSError:
            pass
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo += parents.get(found[-1], [])
    return found


def memory(pid):
    """Bytes of a process that are its own, with its part of what is shared: PSS."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def cpu(pid):
    """CPU seconds of a process and of those it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:15])) / testbed.TICKS
    except OSError:
        return 0


class Running:
    """One proxy: where it listens, and its processes by what they are."""

    def __init__(self, address):
        self.address, self.parts = address, {}

    def add(self, part, child):
        self.parts[part] = child

    def cpu_s(self):
        return {part: sum(map(cpu, tree(child.pid))) for part, child in self.parts.items()}

    def pss(self):
        return sum(memory(pid) for child in self.parts.values() for pid in tree(child.pid))

    def alive(self):
        return all(child.poll() is None for child in self.parts.values())

    def close(self):
        for child in self.parts.values():
            for pid in reversed(tree(child.pid)[1:]):
                try:
                    os.kill(pid, 15)
                except ProcessLookupError:
                    pass
        testbed.stop(self.parts.values())


class Site:
    """Where a proxy runs: a host for the program's side and one for the origin's, and addresses there.

    `near` and `far` start a command on a host: on loopback they are one. `external` is the address from which origins
    are connected to.
    """

    serial = 0

    def __init__(self, near, far, middle, external, networks, scratch):
        self.near, self.far, self.middle = near, far, middle
        self.external, self.networks, self.scratch = external, networks, scratch

    def path(self, name):
        Site.serial += 1
        return os.path.join(self.scratch, f"{id(self)}-{Site.serial}-{name}")

    def written(self, name, text):
        path = self.path(name)
        with open(path, "w", encoding="ascii") as out:
            out.write(text)
        return path


class Ours:
    """Two processes: the client beside the program, the server before the origin."""

    hops = 2

    def __init__(self, binary, is_plain):
        self.binary, self.is_plain = binary, is_plain
        #: More words for the client.
        self.more = []
        #: How much it says, and where that goes.
        self.how, self.log = "--quiet", lambda site, part: site.path(f"{part}.log")
        self.name = "anabranch, plain" if is_plain else "anabranch, TLS"

    def start(self, site, port):
        state = site.path("state")
        os.makedirs(state)
        env = {"STATE_DIRECTORY": state}
        middle = MIDDLE_PORTS + port
        server = [self.binary, "proxy", "server", self.how, "--listen", f"0.0.0.0:{middle}"]
        server += [word for network in site.networks for word in ("--allow", network)]
        client = [self.binary, "proxy", "client", self.how, "--server", f"{site.middle}:{middle}",
                  "--socks", f"127.0.0.1:{port}", *self.more]
        if self.is_plain:
            server += ["--plain"] + [word for network in site.networks for word in ("--from", network)]
            client += ["--plain"]
        else:
            pair = site.path("pair")
            with open(pair, "wb") as out:
                subprocess.run([self.binary, "proxy", "pair"], env={**os.environ, **env}, stdout=out, check=True,
                               stderr=subprocess.DEVNULL)
            client += ["--pair-file", pair]
        running = Running(f"127.0.0.1:{port}")
        running.add("server", site.far.start(server, self.log(site, "server"), env))
        time.sleep(0.3)
        running.add("client", site.near.start(client, self.log(site, "client"), env))
        return running


class Peer:
    """One process: it is reached over the middle, and connects to origins itself."""

    hops = 1

    def __init__(self, name, program):
        self.name, self.program = name, shutil.which(program) or program

    def is_there(self):
        return os.path.exists(self.program)

    def start(self, site, port):
        address = site.middle
        running = Running(f"{address}:{port}")
        if self.name == "microsocks":
            argv = [self.program, "-i", address, "-p", str(port)]
        elif self.name == "dante":
            argv = [self.program, "-f", site.written("danted.conf", DANTE.format(
                address=address, port=port, external=site.external)), "-p", site.path("danted.pid")]
        else:
            argv = [self.program, site.written("hev.yml", HEV.format(address=address, port=port))]
        running.add("proxy", site.far.start(argv, site.path(f"{self.name}.log")))
        return running


def wait_port(place, address):
    """Whether somebody listens at an address of a namespace within five seconds."""
    port = f":{address.rpartition(':')[2]}"
    for _ in range(100):
        if port in place.output(["ss", "-ltnH"]):
            return True
        time.sleep(0.05)
    return False


def all_of(binary, hev):
    peers = [Peer("microsocks", "microsocks"), Peer("dante", "danted"), Peer("hev-socks5-server", hev)]
    return [peer for peer in peers if peer.is_there()] + [Ours(binary, True), Ours(binary, False)]

