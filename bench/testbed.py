"""Where the measuring happens: processes that are waited for and accounted, and network namespaces.

Nothing here touches what it did not start: processes are ended by their own pid, namespaces carry this process's
pid in their name, and both go away on exit, on Ctrl-C and on SIGTERM.
"""

import atexit
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time

TICKS = os.sysconf("SC_CLK_TCK")
IS_ROOT = os.geteuid() == 0
#: A single run that takes longer has failed.
RUN_LIMIT_S = 240
#: TCP congestion control of every peer, pinned on the routes: a namespace of its own may not choose freely.
TCP_CC = "cubic"
#: What TCP can carry of a link's rate as payload: 1448 of 1514 bytes that TBF counts.
PAYLOAD = 0.956
#: The queue of every TBF link.
TBF = "burst 64kb latency 50ms"

_libc = ctypes.CDLL(None, use_errno=True)
_children = []
_namespaces = []
_directories = []


def _clean():
    for child in _children:
        if child.poll() is None:
            child.kill()
            child.wait()
    for name in _namespaces:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    for path in _directories:
        shutil.rmtree(path, ignore_errors=True)
    _children.clear()
    _namespaces.clear()
    _directories.clear()


def install_cleanup():
    """Cleans up however the program ends, short of SIGKILL; then the children die with it."""
    atexit.register(_clean)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _frame: raise_exit(128 + n))


def raise_exit(code):
    raise SystemExit(code)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def scratch():
    """A directory in memory, so that no disk is measured."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = tempfile.mkdtemp(prefix=f"anabranch-bench-{os.getpid()}-", dir=base)
    _directories.append(path)
    return path


class Place:
    """Where commands run: a network namespace, or the host's own network if `name` is None."""

    def __init__(self, name=None):
        self.name = name

    def command(self, argv):
        return ["ip", "netns", "exec", self.name, *argv] if self.name else list(argv)

    def ip(self, *argv):
        subprocess.run(self.command(["ip", *argv]), check=True)

    def start(self, argv, log, env=None):
        """Starts a server; `ip netns exec` becomes the command itself, so the pid is the server's."""
        with open(log, "wb") as out:
            child = subprocess.Popen(
                self.command(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})}, preexec_fn=_die_with_parent)
        _children.append(child)
        return child

    def run(self, argv, log, at=(), env=None, limit_s=RUN_LIMIT_S):
        """Runs a command to its end and returns what it took.

        `at` lists (seconds after the start, function) to call meanwhile.
        """
        began = time.monotonic()
        child = self.start(argv, log, env)
        fd = os.pidfd_open(child.pid)
        todo, peak_kib, killed = sorted(at, key=lambda a: a[0]), 0, False
        try:
            while True:
                passed = time.monotonic() - began
                if todo and passed >= todo[0][0]:
                    todo.pop(0)[1]()
                    continue
                if passed > limit_s and not killed:
                    killed = True
                    child.kill()
                wait = max(0, min(0.05, todo[0][0] - passed if todo else 0.05))
                if select.select([fd], [], [], wait)[0]:
                    break
                peak_kib = max(peak_kib, _high_water_kib(child.pid))
            wall = time.monotonic() - began
        finally:
            os.close(fd)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        _children.remove(child)
        # A child's ru_maxrss starts with what this interpreter held when it forked.
        if usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
            peak_kib = max(peak_kib, usage.ru_maxrss)
        return {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "rss_mib": peak_kib / 1024,
                "rc": child.returncode, "timed_out": killed}


def _high_water_kib(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def cpu_of(pid):
    """User and system seconds of a running process, all threads together."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def stop(children):
    """Ends servers that this program started."""
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGCONT)
            child.terminate()
    for child in children:
        try:
            child.wait(2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child in _children:
            _children.remove(child)


def scheduling():
    """The class that this process and all that it starts are scheduled in."""
    return {os.SCHED_RR: "round robin", os.SCHED_FIFO: "FIFO"}.get(os.sched_getscheduler(0), "ordinary")


def machine_busy_s():
    """CPU seconds that this machine has worked so far, everybody's, stolen time included; and all there were."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    return busy / TICKS, (busy + idle + iowait) / TICKS


def _namespace(suffix):
    name = f"anab{os.getpid()}{suffix}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    _namespaces.append(name)
    place = Place(name)
    place.ip("link", "set", "lo", "up")
    place.ip("route", "replace", "local", "127.0.0.1", "dev", "lo", "src", "127.0.0.1", "table", "local",
             "congctl", TCP_CC)
    return place


class Loopback:
    """Three ports of one loopback: in a namespace of its own for root, on the host's otherwise."""

    def __init__(self):
        self.client = _namespace("l") if IS_ROOT else Place()
        self.servers = [self.client] * 3
        self.addresses = ["127.0.0.1"] * 3

    def carried(self):
        """Loopback counts everything as one."""
        return None

    def close(self):
        _drop(self.client)


class Links:
    """A client and three servers, a veth pair to each, TBF on both of its ends at `mbit` Mbit/s."""

    def __init__(self, mbit):
        self.mbit = list(mbit)
        self.client = _namespace("c")
        self.servers, self.addresses = [], []
        for i, rate in enumerate(self.mbit):
            server = _namespace(f"s{i}")
            inside = f"v{i}"
            subprocess.run(["ip", "link", "add", inside, "netns", self.client.name, "type", "veth",
                            "peer", "name", "v0", "netns", server.name], check=True)
            for place, device, host in ((self.client, inside, 1), (server, "v0", 2)):
                place.ip("addr", "add", f"10.77.{i}.{host}/24", "dev", device)
                place.ip("link", "set", device, "up")
                place.ip("route", "replace", f"10.77.{i}.0/24", "dev", device, "src", f"10.77.{i}.{host}",
                         "congctl", TCP_CC)
                subprocess.run(place.command(["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                                              f"{rate}mbit", *TBF.split()]), check=True)
            self.servers.append(server)
            self.addresses.append(f"10.77.{i}.2")

    def ideal_s(self, size, dead_after=None, dead=None):
        """Seconds in which the links carry `size` bytes of TCP payload; one of them may end `dead_after` s."""
        total = sum(self.mbit) * PAYLOAD * 1e6 / 8
        if dead is None or size <= dead_after * total:
            return size / total
        rest = (sum(self.mbit) - self.mbit[dead]) * PAYLOAD * 1e6 / 8
        return dead_after + (size - dead_after * total) / rest

    def carried(self):
        """Bytes, headers too, that each server has sent over its link so far."""
        shown = (subprocess.run(["ip", "-n", s.name, "-s", "-j", "link", "show", "v0"], check=True,
                                capture_output=True).stdout for s in self.servers)
        return [json.loads(text)[0]["stats64"]["tx"]["bytes"] for text in shown]

    def close(self):
        for place in (self.client, *self.servers):
            _drop(place)


def _drop(place):
    if place.name in _namespaces:
        subprocess.run(["ip", "netns", "del", place.name], check=False)
        _namespaces.remove(place.name)
