#!/usr/bin/env python3
"""`anabranch cache` beside nginx, `anabranch get`, and clients without it.

    sudo python3 bench/gateway.py --bin target/release/anabranch [--only hit,miss,pip,apt] [--json FILE]

* `hit`: a file of `--mb` over loopback, from the cache and from nginx in turns: CPU seconds of the server a GB, and memory.
* `miss`: two idle links of 50 Mbit/s with a round trip of 50 ms: curl from a cache beside it, which fetches from both mirrors, and
  `anabranch get` from the same mirrors.
* `pip`: `pip download` of thirty projects without the cache, through an empty cache, and again.
* `apt`: `apt-get download` of fifty packages, of the first Debian archive in this machine's list of sources, likewise.

pip and apt use the archives on the Internet, so their rows differ from hour to hour: only those of one run can be compared. Standard
library only; programs are those of the directory of `--bin`. Printed is a table in Markdown.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

import links
import testbed

#: Projects of which pip gets the newest wheel or archive.
PROJECTS = """six idna certifi urllib3 requests packaging setuptools wheel attrs click jinja2 markupsafe pyyaml toml tomli
    rich pygments colorama pytz tzdata python-dateutil numpy jsonschema filelock platformdirs virtualenv pluggy iniconfig
    pytest typing-extensions""".split()
#: Packages that every Debian has; their dependencies are not fetched.
PACKAGES = """bash coreutils sed grep gawk findutils diffutils tar gzip bzip2 xz-utils zip unzip less nano vim-tiny file bc
    procps psmisc util-linux mount passwd login adduser cron rsyslog logrotate curl wget rsync openssh-client git make gcc g++
    binutils gdb strace ltrace python3-minimal perl-base ruby lua5.4 sqlite3 jq tree htop tmux screen socat netcat-openbsd
    tcpdump""".split()[:50]


def config(directory, port, routes):
    """Writes the settings of a cache; a route is its path, its preset and its sources."""
    text = f'listen = "127.0.0.1:{port}"\ndirectory = "{directory}/store"\ncapacity = "20GB"\n'
    for at, preset, sources in routes:
        text += f'[[route]]\nat = "{at}"\npreset = "{preset}"\nsources = {json.dumps(sources)}\n'
    path = os.path.join(directory, "cache.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def until_open(place, port):
    for _ in range(200):
        probe = ["curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{port}/status"]
        if subprocess.run(place.command(probe), check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise SystemExit("the cache does not start")


def high_water_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmHWM:\s+(\d+)", status.read())[1]) / 1024


def hit(program, options):
    """CPU seconds a GB of cache and nginx."""
    place, scratch, size = testbed.Place(), testbed.scratch(), options.mb * 10**6
    files = os.path.join(scratch, "files")
    os.mkdir(files)
    with open(os.path.join(files, "file"), "wb") as file:
        file.write(os.urandom(size))
    settings = os.path.join(scratch, "nginx.conf")
    with open(settings, "w", encoding="utf-8") as file:
        file.write(f"daemon off; master_process off; pid {scratch}/pid; error_log /dev/null; user root;\nevents {{}}\n"
                   f"http {{ access_log off; sendfile on; server {{ listen 127.0.0.1:8098; root {files}; }} }}\n")
    servers = {
        "nginx": (place.start(["nginx", "-p", scratch, "-c", settings], f"{scratch}/nginx.log"), 8098, "/file"),
        "anabranch cache": (place.start([program, config(scratch, 8097, [("/", "files", ["http://127.0.0.1:8098"])])],
                                        f"{scratch}/cache.log"), 8097, "/file")}
    until_open(place, 8097)
    get = lambda port, path: subprocess.run(
        ["curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:{port}{path}"], check=True)
    get(8097, "/file")
    time.sleep(2)
    taken = {name: [] for name in servers}
    for _ in range(options.runs):
        for name, (child, port, path) in servers.items():
            before = testbed.cpu_of(child.pid)
            get(port, path)
            taken[name].append((testbed.cpu_of(child.pid) - before) / (size / 1e9))
    rows = []
    for name, (child, *_) in servers.items():
        rows.append({"row": f"hit, {name}", "cpu_s_per_gb": round(statistics.median(taken[name]), 3),
                     "memory_mib": round(high_water_mib(child.pid), 1)})
        child.terminate()
        child.wait()
    return rows


class Behind(links.Run):
    """A download by curl from a cache on the same host."""

    program = None

    def command(self, row):
        if row != "cache":
            return super().command(row)
        urls = [f"http://{host}:8000" for host in self.hosts]
        for host in self.hosts:
            self.lab.nginx("mm.tx", f"{host}:8000", os.path.dirname(self.path))
        directory = os.path.join(self.out, "gateway")
        os.mkdir(directory)
        self.lab.start("mm.rx", self.program, config(directory, 8097, [("/", "files", urls)]))
        time.sleep(0.5)
        url = f"http://127.0.0.1:8097/{os.path.basename(self.path)}"
        return "mm.rx", ["curl", "-sf", "-o", self.got, url]


def miss(program, options):
    """Seconds of curl through the cache, and of `get`, over two idle links."""
    Behind.program = program
    path = os.path.join(testbed.scratch(), "file")
    with open(path, "wb") as file:
        file.write(os.urandom(40_000_000))
    bed = links.Bed([50, 50], [50, 50], 50)
    taken = {"cache": [], "anabranch, mirrors": []}
    for seed in range(options.runs):
        for row, runs in taken.items():
            run = links.attempt(Behind, options.bin, bed, path, "cubic", lambda run, row=row: run.download(row), seed + 1)
            if "failed" in run:
                raise SystemExit(f"{row}: {run['failed']}")
            runs.append(run["wall_s"])
    names = {"cache": "curl through the cache", "anabranch, mirrors": "anabranch get"}
    return [{"row": f"miss, two links, {names[row]}", "seconds": round(statistics.median(runs), 2)} for row, runs in taken.items()]


def timed(argv, directory):
    os.makedirs(directory)
    began = time.monotonic()
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(argv[:4])} …: {(done.stdout + done.stderr)[-400:]}")
    return round(seconds, 1), len(os.listdir(directory))


def clients(name, program, route, argv):
    """A client without the cache, through an empty one, and again; `argv` makes its command for a URL or None."""
    place, scratch = testbed.Place(), testbed.scratch()
    child = place.start([program, config(scratch, 8096, [route])], f"{scratch}/cache.log")
    until_open(place, 8096)
    url = f"http://127.0.0.1:8096{route[0]}"
    rows = []
    for how, through in (("without", None), ("cold", url), ("warm", url)):
        if through:
            time.sleep(2)
        seconds, files = timed(argv(through, os.path.join(scratch, f"state-{how}")), os.path.join(scratch, how))
        rows.append({"row": f"{name}, {how}", "seconds": seconds, "files": files})
    child.terminate()
    child.wait()
    return rows


def pip(program, _options):
    def argv(url, _state):
        index = ["--index-url", f"{url}/"] if url else []
        return [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--only-binary", ":all:",
                *index, *PROJECTS]
    # Only the index is wanted, not wheels that lie on this machine.
    os.environ.pop("PIP_FIND_LINKS", None)
    return clients("pip, 30 projects", program, ("/pypi", "pypi", ["https://pypi.org/simple"]), argv)


def archive():
    """The first Debian archive in the lists of sources, and its suite."""
    found = []
    for root, _, names in os.walk("/etc/apt"):
        for name in sorted(names):
            if not name.endswith((".list", ".sources")):
                continue
            with open(os.path.join(root, name), encoding="utf-8") as file:
                text = file.read()
            found += re.findall(r"^deb\s+(?:\[[^\]]*\]\s+)?(https?://\S+)\s+(\S+)", text, re.M)
            found += re.findall(r"^URIs:\s*(https?://\S+).*?^Suites:\s*(\S+)", text, re.M | re.S)
    for url, suite in found:
        if url.rstrip("/").endswith("/debian"):
            return url.rstrip("/"), suite
    raise SystemExit("this machine has no list with a Debian archive")


def apt(program, _options):
    url, suite = archive()

    def argv(through, state):
        for path in ("lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"):
            os.makedirs(os.path.join(state, path))
        with open(os.path.join(state, "etc/sources.list"), "w", encoding="utf-8") as file:
            file.write(f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {through or url} {suite} main\n")
        with open(os.path.join(state, "status"), "w", encoding="utf-8"):
            pass
        given = [f"Dir::Etc={state}/etc", f"Dir::State={state}", f"Dir::State::status={state}/status", f"Dir::Cache={state}/cache",
                 "APT::Sandbox::User=root", "Acquire::Languages=none"]
        words = " ".join(f"-o {one}" for one in given)
        return ["sh", "-c", f"apt-get -qq {words} update && apt-get -qq {words} download {' '.join(PACKAGES)}"]
    return clients("apt, 50 packages", program, ("/debian", "apt", [url]), argv)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the program `anabranch`; its others are beside it")
    parser.add_argument("--only", default="hit,miss,pip,apt")
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", help="writes the rows to a file, too")
    options = parser.parse_args()
    testbed.install_cleanup()
    program = os.path.join(os.path.dirname(os.path.abspath(options.bin)), "anabranch-cache")
    rows = []
    for name in options.only.split(","):
        rows += {"hit": hit, "miss": miss, "pip": pip, "apt": apt}[name](program, options)
    print("| row | CPU s/GB | seconds | files | memory, MiB |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        cells = [row.get(key, "") for key in ("cpu_s_per_gb", "seconds", "files", "memory_mib")]
        print(f"| {row['row']} | {' | '.join(map(str, cells))} |")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
