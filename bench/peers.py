"""The programs that are measured: how each serves three copies, and how each fetches one file."""

import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import time

import testbed
from stack import NGINX

PORT = 8077
DEBIAN = {"aria2c": "aria2", "nginx": "nginx", "axel": "axel", "curl": "curl", "ip": "iproute2", "tc": "iproute2"}
URI = re.compile(r'\b(?:anabranch|mmtp):[^\s"\\]+')


def install(wanted):
    """Installs Debian packages that are missing, if root; returns the commands that are there in the end."""
    missing = sorted({DEBIAN[c] for c in wanted if not shutil.which(c)})
    if missing and testbed.IS_ROOT and shutil.which("apt-get"):
        print(f"installing with apt-get: {' '.join(missing)}", flush=True)
        # Debian would start nginx on port 80 at once; this file forbids it meanwhile.
        policy, ours = "/usr/sbin/policy-rc.d", False
        if not os.path.exists(policy):
            with open(policy, "w", encoding="ascii") as script:
                script.write("#!/bin/sh\nexit 101\n")
            os.chmod(policy, 0o755)
            ours = True
        try:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "update"], env=env, **quiet)
            for package in missing:
                subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", package], env=env, **quiet)
        finally:
            if ours:
                os.remove(policy)
    for command in wanted:
        if not shutil.which(command):
            print(f"skipped: {command} is not installed (Debian package {DEBIAN[command]})", flush=True)
    return {c for c in wanted if shutil.which(c)}


def version(command):
    """The first line of `command --version`, shortened; empty if it is not there."""
    flag = "-v" if command == "nginx" else "--version"
    try:
        out = subprocess.run([command, flag], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    lines = (out.stdout + out.stderr).splitlines()
    found = re.search(r"\d+(\.\d+)+", lines[0]) if lines else None
    return found.group(0) if found else ""


class Sources:
    """Three running servers of one file."""

    def __init__(self):
        self.children, self.urls, self.uri, self.hosts = [], [], None, []

    def cpu_s(self):
        return sum(testbed.cpu_of(child.pid) for child in self.children)

    def close(self):
        testbed.stop(self.children)


def flip(path, into):
    """A copy with eight bytes flipped in every megabyte."""
    shutil.copyfile(path, into)
    size = os.path.getsize(path)
    with open(into, "r+b") as out:
        for at in range(500_000, size, 1_000_000):
            out.seek(at)
            eight = out.read(8)
            out.seek(at)
            out.write(bytes(b ^ 0xFF for b in eight))


def nginx(bed, path, scratch, liar=None):
    """One nginx, one process, for each of the three places; the `liar`-th has flipped bytes."""
    sources, name = Sources(), os.path.basename(path)
    for i, place in enumerate(bed.servers):
        port, root = PORT + i, os.path.join(scratch, f"www{i}{'-flipped' if i == liar else ''}")
        os.makedirs(root, exist_ok=True)
        copy = os.path.join(root, name)
        if not os.path.exists(copy):
            flip(path, copy) if i == liar else os.link(path, copy)
        config = os.path.join(scratch, f"nginx{i}.conf")
        with open(config, "w", encoding="ascii") as out:
            out.write(NGINX.format(dir=scratch, n=i, listen=f"{bed.addresses[i]}:{port}", root=root))
        sources.children.append(place.start(["nginx", "-c", config], os.path.join(scratch, f"nginx{i}.log")))
        sources.hosts.append(f"{bed.addresses[i]}:{port}")
        sources.urls.append(f"http://{bed.addresses[i]}:{port}/{name}")
    for i, place in enumerate(bed.servers):
        for _ in range(100):
            probe = place.command(["curl", "-sfI", "-o", "/dev/null", sources.urls[i]])
            if subprocess.run(probe, check=False).returncode == 0:
                break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"nginx {i} does not answer; see {scratch}/nginx{i}.log")
    return sources


def anabranch(bed, path, scratch, binary, liar=None):
    """One `anabranch serve` for each of the three places; the `liar`-th flips bytes in what it sends."""
    sources, logs = Sources(), []
    for i, place in enumerate(bed.servers):
        host, log = f"{bed.addresses[i]}:{PORT + i}", os.path.join(scratch, f"serve{i}.log")
        env = {"XDG_CACHE_HOME": os.path.join(scratch, "cache")}
        argv = [binary, "serve", path, "--listen", host, "--json"]
        if i == liar:
            argv = [os.path.join(os.path.dirname(binary), "examples", "liar"), path, host]
        sources.children.append(place.start(argv, log, env))
        sources.hosts.append(host)
        logs.append(log)
    for child, log in zip(sources.children, logs):
        for _ in range(1200):
            with open(log, encoding="utf-8", errors="replace") as out:
                found = URI.search(out.read())
            if found:
                sources.uri = found.group(0)
                break
            if child.poll() is not None:
                with open(log, encoding="utf-8", errors="replace") as out:
                    raise RuntimeError(f"anabranch serve ended: {out.read()[-400:]}")
            time.sleep(0.05)
        else:
            raise RuntimeError("anabranch serve printed no URI in a minute")
    return sources


class Fetcher:
    """A row of a table: a program with its options."""

    def __init__(self, label, server, argv, needs, verifies=False):
        self.label, self.server, self.argv, self.needs, self.verifies = label, server, argv, needs, verifies

    def fetch(self, bed, sources, path, scratch, at=()):
        """Fetches once; adds the sources' CPU and whether the file is right."""
        target = os.path.join(scratch, "out")
        os.makedirs(target, exist_ok=True)
        out = os.path.join(target, os.path.basename(path))
        log = os.path.join(scratch, "fetch.log")
        argv = self.argv(sources, out, path)
        before, (busy, total) = sources.cpu_s(), testbed.machine_busy_s()
        run = bed.client.run(argv, log, at=at)
        run["cpu_sources_s"] = sources.cpu_s() - before
        busy_now, total_now = testbed.machine_busy_s()
        others = busy_now - busy - run["cpu_s"] - run["cpu_sources_s"]
        run["others_percent"] = 100 * max(0, others) / max(total_now - total, 1 / testbed.TICKS)
        run["right"] = os.path.exists(out) and filecmp.cmp(path, out, shallow=False)
        run["named"] = _named(log)
        if run["rc"] != 0 or not run["right"]:
            with open(log, encoding="utf-8", errors="replace") as text:
                run["log"] = text.read()[-600:]
        shutil.rmtree(target)
        return run


def _named(log):
    """The sources that `anabranch get --json` says it banned."""
    with open(log, encoding="utf-8", errors="replace") as out:
        for line in out:
            if line.startswith("{") and '"summary"' in line:
                try:
                    return [s.get("source") for s in json.loads(line).get("banned", [])]
                except ValueError:
                    return []
    return []


def get(binary, *options, label):
    def argv(sources, out, _path):
        froms = [word for host in sources.hosts for word in ("--from", host)]
        return [binary, "get", sources.uri, *froms, "-o", out, "--json", *options]
    return Fetcher(label, "anabranch", argv, set(), verifies=True)


def aria2(*options, checksum=False):
    """With options it does not allocate the file beforehand either; without any it has its defaults."""
    label = " ".join(["aria2" if options else "aria2, defaults", *options, *["--checksum=sha-256"] * checksum])
    tuned = ["--file-allocation=none", *options] if options else []

    def argv(sources, out, path):
        extra = [f"--checksum=sha-256={sha256(path)}"] if checksum else []
        return ["aria2c", "--no-conf", "-q", "--auto-file-renaming=false", "-d", os.path.dirname(out),
                "-o", os.path.basename(out), *tuned, *extra, *sources.urls]
    return Fetcher(label, "nginx", argv, {"aria2c", "nginx", "curl"}, verifies=checksum)


def aria2_metalink(label):
    def argv(sources, out, path):
        meta = metalink(path, sources.urls, out + ".meta4")
        return ["aria2c", "--no-conf", "-q", "--auto-file-renaming=false", "--file-allocation=none", "-s3", "-x1",
                "-k1M", "-d", os.path.dirname(out), "-M", meta]
    return Fetcher(label, "nginx", argv, {"aria2c", "nginx", "curl"}, verifies=True)


def curl(label):
    def argv(sources, out, _path):
        return ["curl", "-sf", "-o", out, sources.urls[0]]
    return Fetcher(label, "nginx", argv, {"curl", "nginx"})


def axel(label):
    def argv(sources, out, _path):
        return ["axel", "-q", "-n", "3", "-o", out, *sources.urls]
    return Fetcher(label, "nginx", argv, {"axel", "nginx", "curl"})


_digests = {}


def sha256(path):
    if path not in _digests:
        with open(path, "rb") as data:
            _digests[path] = hashlib.file_digest(data, "sha256").hexdigest()
    return _digests[path]


def metalink(path, urls, into, piece=1 << 20):
    """A Metalink (RFC 5854) with a SHA-256 of every MiB: the best that aria2 can be given."""
    with open(path, "rb") as data:
        pieces = "".join(f"<hash>{hashlib.sha256(part).hexdigest()}</hash>" for part in iter(lambda: data.read(piece), b""))
    links = "".join(f"<url>{u}</url>" for u in urls)
    with open(into, "w", encoding="ascii") as out:
        out.write('<?xml version="1.0" encoding="UTF-8"?><metalink xmlns="urn:ietf:params:xml:ns:metalink">'
                  f'<file name="{os.path.basename(path)}"><size>{os.path.getsize(path)}</size>'
                  f'<hash type="sha-256">{sha256(path)}</hash>'
                  f'<pieces length="{piece}" type="sha-256">{pieces}</pieces>{links}</file></metalink>')
    return into
