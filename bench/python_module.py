#!/usr/bin/env python3
"""The Python module beside the command and beside fsspec's own HTTP.

    sudo VENV/bin/python bench/python_module.py --bin target/release/anabranch [--runs 5] [--json FILE]

Run it by a Python that has the wheel, fsspec and aiohttp.

* `import`: milliseconds of `import anabranch`, by `-X importtime`.
* `get`: a file of `--mb` over loopback from nginx, by `anabranch get` and by `anabranch.get`, in turns: wall seconds. The time in which
  the interpreter starts is not in it, that of the command is.
* `ranges`: `cat_ranges` of 1,000 ranges of `--range` bytes, each somewhere in its own 100 kB, by fsspec's `https` and by ours, from one server
  over one link of 100 Mbit/s with a round trip of 50 ms, and ours from two such servers over two links.

Printed is a table in Markdown: medians, and the least and the most of all runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import links
import testbed

CELL, RANGES = 100_000, 1_000
GET = """
import anabranch, sys, time
began = time.monotonic()
anabranch.get(sys.argv[1], sys.argv[2], overwrite=True)
print(time.monotonic() - began)
"""
CAT = """
import fsspec, hashlib, random, sys, time
url, mirror, size, length = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
at = random.Random(1)
starts = [cell * size + at.randrange(size - length) for cell in range(1000)]
options = {"mirrors": {url: [mirror]}} if mirror else {}
fs, path = fsspec.url_to_fs(url, **options)
began = time.monotonic()
parts = fs.cat_ranges([path] * 1000, starts, [start + length for start in starts])
print(time.monotonic() - began, hashlib.sha256(b"".join(parts)).hexdigest())
"""


def imports(options):
    def once():
        said = subprocess.run([sys.executable, "-X", "importtime", "-c", "import anabranch"], capture_output=True, text=True, check=True)
        last = said.stderr.strip().splitlines()[-1].split("|")
        return int(last[1]) / 1000

    return {"import anabranch, ms": [once() for _ in range(options.runs)]}


def gets(options):
    place, scratch = testbed.Place(), testbed.scratch()
    with open(f"{scratch}/file", "wb") as file:
        file.write(os.urandom(options.mb * 1_000_000))
    settings = f"{scratch}/nginx.conf"
    with open(settings, "w", encoding="ascii") as file:
        file.write(f"""daemon off; user root; pid {scratch}/pid; error_log {scratch}/errors; events {{}}
            http {{ access_log off; client_body_temp_path {scratch}/t; sendfile on;
            server {{ listen 127.0.0.1:8098; root {scratch}; }} }}""")
    server = place.start(["nginx", "-p", scratch, "-c", settings], f"{scratch}/log")
    time.sleep(0.5)
    url, taken = "http://127.0.0.1:8098/file", {"command": [], "module": []}
    for _ in range(options.runs):
        began = time.monotonic()
        subprocess.run([options.bin, "get", "--force", "-q", "-o", f"{scratch}/got", url], check=True)
        taken["command"].append(time.monotonic() - began)
        said = subprocess.run([sys.executable, "-c", GET, url, f"{scratch}/got2"], capture_output=True, text=True, check=True)
        taken["module"].append(float(said.stdout))
    server.terminate()
    server.wait()
    return {f"get of {options.mb} MB over loopback, {name}, s": seconds for name, seconds in taken.items()}


def cat(run, scheme, mirrored, length):
    for host in run.hosts:
        run.lab.nginx("mm.tx", f"{host}:8000", os.path.dirname(run.path))
    time.sleep(0.5)
    name = os.path.basename(run.path)
    urls = [f"http://{host}:8000/{name}" for host in run.hosts]
    child = run.lab.start("mm.rx", sys.executable, "-c", CAT, scheme + urls[0], urls[1] if mirrored else "", str(CELL),
                          str(length), stdout=subprocess.PIPE, text=True)
    seconds, hashed = child.communicate(timeout=120)[0].split()
    return float(seconds), hashed


def ranges(options):
    path = os.path.join(testbed.scratch(), "file")
    with open(path, "wb") as file:
        file.write(os.urandom(CELL * RANGES))
    one, two = links.Bed([100], [50], 50), links.Bed([100, 100], [50, 50], 50)
    rows = {"fsspec's http": (one, "", False), "ours": (one, "anabranch+", False), "ours, two links": (two, "anabranch+", True)}
    taken, hashes = {name: [] for name in rows}, set()
    for seed in range(options.runs):
        for name, (bed, scheme, mirrored) in rows.items():
            work = lambda run: cat(run, scheme, mirrored, options.range)
            found = links.attempt(links.Run, options.bin, bed, path, "cubic", work, seed + 1)
            if isinstance(found, dict):
                raise SystemExit(f"{name}: {found['failed']}")
            taken[name].append(found[0])
            hashes.add(found[1])
    if len(hashes) != 1:
        raise SystemExit("the bytes differ")
    return {f"{RANGES} ranges of {options.range} bytes, {name}, s": seconds for name, seconds in taken.items()}


PARTS = {"import": imports, "get": gets, "ranges": ranges}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/anabranch")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--range", type=int, default=10_000)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--json")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    testbed.install_cleanup()
    rows = {}
    for part in options.only.split(","):
        rows |= PARTS[part](options)
    print("| | median | least to most |\n| --- | --- | --- |")
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.3g} | {min(values):.3g} to {max(values):.3g} |")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
