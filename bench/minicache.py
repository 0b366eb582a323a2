#!/usr/bin/env python3
"""`anabranch minicache` beside nginx, lighttpd and varnish: start, crash, throughput, processor, memory.

    sudo chrt -r 5 python3 bench/minicache.py --bin target/x86_64-unknown-linux-musl/release/anabranch-minicache [--only start,crash,bytes,small] [--json FILE]

All serve the same files in memory (/dev/shm) over loopback: a full table of 65,536 objects, nearly all of 100 bytes. varnish has nginx behind it.

* `start`: from the start of the program to the last byte of an object of 16 KiB that the client has compared; and the memory then.
* `crash`: 1,000 streams of the large object that their clients read slowly; the serving process gets SIGKILL, the clients come again with a
  range. Milliseconds from the kill to the next byte of a stream of a process of its own, which reads all the time, and of the median one and
  the last one of the others, whose one process is slower than the server; every byte is compared.
* `bytes`: the large object, by curl, in turns: throughput and CPU seconds of all processes of the server a GB.
* `small`: objects of 16 KiB by wrk, 64 connections: requests a second, CPU microseconds a request.

Memory is `VmRSS` of all processes of a server. Standard library only. Printed is a table in Markdown.
"""

import argparse
import glob
import hashlib
import json
import mmap
import multiprocessing
import os
import re
import resource
import select
import shutil
import socket
import statistics
import subprocess
import time

import testbed

#: The objects of 100 bytes; with those below the table is full.
ENTRIES = 65_536
MIDDLE = 16_384
STREAMS = 1_000
#: What a stream reads before the crash, and from its range on.
PART = 16_384


def name_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Files:
    """The directory that all servers serve, and the image of the same objects."""

    def __init__(self, program, megabytes):
        self.scratch = testbed.scratch()
        # varnish serves as a user of its own.
        os.chmod(self.scratch, 0o755)
        self.root = os.path.join(self.scratch, "files")
        os.mkdir(self.root)
        self.middle = [os.urandom(MIDDLE) for _ in range(64)]
        small = [b"%099d\n" % n for n in range(ENTRIES - len(self.middle) - 1)]
        for data in [*self.middle, *small]:
            with open(os.path.join(self.root, name_of(data)), "wb") as file:
                file.write(data)
        self.map_large(megabytes)
        self.image = os.path.join(self.scratch, "image")
        size = len(self.large) + ENTRIES * 5_000 + 100_000_000
        subprocess.run([program, "make", self.image, "--size", str(size), "--entries", str(ENTRIES), "--chunk", "4096"], check=True)
        names = sorted(os.listdir(self.root))
        for at in range(0, len(names), 8_192):
            subprocess.run([program, "add", self.image, *names[at:at + 8_192]], cwd=self.root, check=True, stdout=subprocess.DEVNULL)


    def map_large(self, megabytes):
        """Makes the large object. It is mapped, not read: starting a process copies the tables of a program's own memory."""
        path, digest = os.path.join(self.root, "large"), hashlib.sha256()
        with open(path, "wb") as file:
            for _ in range(megabytes):
                part = os.urandom(10**6)
                digest.update(part)
                file.write(part)
        self.large_name = "sha256:" + digest.hexdigest()
        os.rename(path, os.path.join(self.root, self.large_name))
        with open(os.path.join(self.root, self.large_name), "rb") as file:
            self.large = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class Server:
    """A server program: how it is started, and the processes that it consists of."""

    def __init__(self, name, port, argv):
        self.name, self.port, self.argv, self.child = name, port, argv, None

    def start(self, log):
        self.child = testbed.Place().start(self.argv, log)
        return self

    def processes(self):
        """All processes of the server."""
        found = [self.child.pid]
        for pid in found:
            for path in glob.glob(f"/proc/{pid}/task/*/children"):
                try:
                    with open(path, encoding="ascii") as file:
                        found += [int(word) for word in file.read().split()]
                except OSError:
                    pass
        return found

    def cpu_s(self):
        return sum(testbed.cpu_of(pid) for pid in self.processes())

    def memory_mib(self):
        total = 0
        for pid in self.processes():
            with open(f"/proc/{pid}/status", encoding="ascii") as status:
                total += int((re.search(r"VmRSS:\s+(\d+)", status.read()) or [0, 0])[1])
        return total / 1024

    def worker(self):
        """The processes that serve, if others can take their place; a parent starts those."""
        return self.processes()[1:]

    def stop(self):
        testbed.stop([self.child])


def servers(program, files):
    """All servers by name."""
    common = "error_log /dev/null; user root;\nevents { worker_connections 4096; }\nworker_rlimit_nofile 20000;\n"
    http = "http {{ access_log off; sendfile on; default_type application/octet-stream; server {{ listen 127.0.0.1:{} backlog=4096; root {}; }} }}\n"
    for port, kind in ((8491, "nginx"), (8494, "behind")):
        with open(f"{files.scratch}/{kind}.conf", "w", encoding="utf-8") as file:
            workers = "worker_processes 2" if kind == "nginx" else "master_process off"
            file.write(f"daemon off; {workers}; pid {files.scratch}/{kind}.pid; " + common + http.format(port, files.root))
    with open(f"{files.scratch}/lighttpd.conf", "w", encoding="utf-8") as file:
        file.write(f'server.document-root = "{files.root}"\nserver.port = 8492\nserver.bind = "127.0.0.1"\n'
                   'server.max-fds = 8192\nserver.listen-backlog = 4096\nserver.network-backend = "sendfile"\n')
    with open(f"{files.scratch}/varnish.vcl", "w", encoding="utf-8") as file:
        file.write('vcl 4.1; backend default { .host = "127.0.0.1"; .port = "8494"; }\n')
    all_servers = [Server("minicache", 8490, [program, "serve", files.image, "--listen", "127.0.0.1:8490", "--quiet"])]
    if shutil.which("nginx"):
        all_servers.append(Server("nginx", 8491, ["nginx", "-p", files.scratch, "-c", f"{files.scratch}/nginx.conf"]))
    if shutil.which("lighttpd"):
        all_servers.append(Server("lighttpd", 8492, ["lighttpd", "-D", "-f", f"{files.scratch}/lighttpd.conf"]))
    if shutil.which("varnishd") and shutil.which("nginx"):
        all_servers.append(Server("varnish", 8493, [
            "varnishd", "-F", "-a", "127.0.0.1:8493", "-f", f"{files.scratch}/varnish.vcl", "-s", "malloc,3G", "-n", f"{files.scratch}/varnish",
            "-p", "thread_pool_min=100", "-p", "thread_pool_max=2000"]))
    return all_servers


def request(path, start=None):
    field = f"Range: bytes={start}-\r\n" if start is not None else ""
    return f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n".encode()


def until_answered(port, data, limit_s=20):
    """Asks again and again until an object has come; returns when its bytes are right."""
    path, end = name_of(data), time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as stream:
                stream.sendall(request(path))
                got = b""
                while (part := stream.recv(65_536)):
                    got += part
                    head, gap, body = got.partition(b"\r\n\r\n")
                    if gap and len(body) >= len(data):
                        if body == data and head.split(b" ")[1] == b"200":
                            return
                        raise SystemExit(f"port {port}: wrong bytes")
        except OSError:
            pass
        time.sleep(0.0002)
    raise SystemExit(f"port {port} does not answer")


def start(all_servers, files, options):
    taken, memory = {s.name: [] for s in all_servers}, {}
    for run in range(options.starts):
        for server in all_servers:
            began = time.monotonic()
            server.start(f"{files.scratch}/{server.name}.log")
            until_answered(server.port, files.middle[run % len(files.middle)])
            taken[server.name].append((time.monotonic() - began) * 1e3)
            memory[server.name] = server.memory_mib()
            server.stop()
    return [{"row": "start", "server": name, "start_ms": round(statistics.median(all_ms), 1), "start_max_ms": round(max(all_ms), 1),
             "memory_mib": round(memory[name], 1)} for name, all_ms in taken.items()]


class Stream:
    """One client of the large object: it compares every byte, and reads no more than it is told."""

    def __init__(self, files, port, at):
        self.files, self.port, self.at, self.wrong = files, port, at, False
        self.connect()

    def connect(self):
        self.head, self.wanted = b"", self.at + PART
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", self.port))
        self.asked = False

    def ask(self):
        self.socket.send(request(self.files.large_name, self.at))
        self.asked = True

    def read(self):
        """Takes what is there. Returns whether a byte of the object came; raises OSError at the end."""
        part = self.socket.recv(PART)
        if not part:
            raise ConnectionResetError
        if self.head is not None:
            self.head += part
            head, gap, part = self.head.partition(b"\r\n\r\n")
            if not gap:
                return False
            self.wrong |= head.split(b" ")[1] != b"206"
            self.head = None
        self.wrong |= self.files.large[self.at:self.at + len(part)] != part
        self.at += len(part)
        return bool(part)


def drive(streams, done, limit_s=60):
    """Moves all streams until each is `done(stream)`. A connection that ends is begun again with a range."""
    poll, by_fd = select.epoll(), {}

    def watch(stream):
        by_fd[stream.socket.fileno()] = stream
        poll.register(stream.socket.fileno(), select.EPOLLIN | (0 if stream.asked else select.EPOLLOUT))

    def again(stream):
        by_fd.pop(stream.socket.fileno(), None)
        stream.socket.close()
        stream.connect()
        watch(stream)

    left = set(streams)
    for stream in streams:
        watch(stream)
    end = time.monotonic() + limit_s
    while left and time.monotonic() < end:
        for fd, events in poll.poll(0.5):
            stream = by_fd.get(fd)
            if stream is None:
                continue
            try:
                if not stream.asked and events & select.EPOLLOUT:
                    stream.ask()
                    poll.modify(fd, select.EPOLLIN)
                elif events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and stream.read() and done(stream):
                    left.discard(stream)
                    poll.unregister(fd)
                    by_fd.pop(fd)
            except BlockingIOError:
                pass
            except OSError:
                again(stream)
    poll.close()
    if left:
        raise SystemExit(f"{len(left)} streams got nothing")


def read_on(files, port, ready, told):
    """Reads the large object again and again; after the connection has ended it comes again with a range, and tells when a byte came."""
    at, broken = 0, False
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
                stream.sendall(request(files.large_name, at))
                head = b""
                while b"\r\n\r\n" not in head:
                    part = stream.recv(65_536)
                    if not part:
                        raise ConnectionResetError
                    head += part
                part = head.partition(b"\r\n\r\n")[2]
                while True:
                    if part and broken:
                        now = time.monotonic()
                        told.send((now, head.split(b" ")[1] == b"206" and files.large[at:at + len(part)] == part))
                        return
                    at += len(part)
                    if at > 100_000:
                        ready.set()
                    # The pace of a film, so that the others have their turn.
                    time.sleep(0.001)
                    part = stream.recv(16_384)
                    if not part and at < len(files.large):
                        raise ConnectionResetError
                    if not part:
                        break
                at = 0
        except OSError:
            broken = broken or ready.is_set()
            time.sleep(0.0001)


def crash(all_servers, files, options):
    rows = []
    for server in all_servers:
        if server.name == "lighttpd":
            # One process, which nothing replaces.
            continue
        firsts, medians, lasts, wrong = [], [], [], 0
        for _ in range(options.crashes):
            server.start(f"{files.scratch}/{server.name}.log")
            until_answered(server.port, files.middle[0])
            streams = [Stream(files, server.port, n * 1_000) for n in range(STREAMS)]
            drive(streams, lambda stream: stream.at >= stream.wanted)
            ready, (mine, its) = multiprocessing.Event(), multiprocessing.Pipe()
            reader = multiprocessing.Process(target=read_on, args=(files, server.port, ready, its), daemon=True)
            reader.start()
            ready.wait(30)
            # What lies in the sockets' buffers came before the crash: it is not counted as the next byte.
            workers, killed = server.worker(), time.monotonic()
            for pid in workers:
                os.kill(pid, 9)
            came = {}

            def next_byte(stream):
                if stream.fresh:
                    came.setdefault(stream, time.monotonic())
                return stream.fresh

            for stream in streams:
                stream.fresh = False
                connect = stream.connect

                def anew(stream=stream, connect=connect):
                    connect()
                    stream.fresh = True
                stream.connect = anew
            drive(streams, next_byte)
            times = sorted((at - killed) * 1e3 for at in came.values())
            if not mine.poll(60):
                raise SystemExit(f"{server.name}: no byte came after the crash")
            came_at, is_right = mine.recv()
            wrong += not is_right
            reader.join()
            firsts.append((came_at - killed) * 1e3)
            medians.append(statistics.median(times))
            lasts.append(times[-1])
            wrong += sum(stream.wrong for stream in streams)
            for stream in streams:
                stream.socket.close()
            server.stop()
        rows.append({"row": "crash", "server": server.name, "next_byte_ms": round(statistics.median(firsts), 1),
                     "next_byte_max_ms": round(max(firsts), 1), "median_ms": round(statistics.median(medians), 1),
                     "last_ms": round(statistics.median(lasts), 1), "wrong": wrong})
    return rows


def loaded(all_servers, files, options, row, load):
    """Runs a load on each server in turns; `load(server)` returns units done and seconds."""
    rates, costs, memory = ({s.name: [] for s in all_servers} for _ in range(3))
    for server in all_servers:
        server.start(f"{files.scratch}/{server.name}.log")
        until_answered(server.port, files.middle[0])
        load(server)
    for _ in range(options.runs):
        for server in all_servers:
            before = server.cpu_s()
            units, seconds = load(server)
            costs[server.name].append((server.cpu_s() - before) / units)
            rates[server.name].append(units / seconds)
            memory[server.name].append(server.memory_mib())
    for server in all_servers:
        server.stop()
    return [{"row": row, "server": s.name, "rate": statistics.median(rates[s.name]), "cpu_s": statistics.median(costs[s.name]),
             "memory_mib": round(max(memory[s.name]), 1)} for s in all_servers]


def large_bytes(all_servers, files, options):
    def load(server):
        began = time.monotonic()
        subprocess.run(["curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:{server.port}/{files.large_name}"], check=True)
        return len(files.large) / 1e9, time.monotonic() - began
    rows = loaded(all_servers, files, options, "bytes", load)
    return [{"row": r["row"], "server": r["server"], "gb_per_s": round(r["rate"], 2), "cpu_s_per_gb": round(r["cpu_s"], 3),
             "memory_mib": r["memory_mib"]} for r in rows]


def small(all_servers, files, options):
    if not shutil.which("wrk"):
        print("wrk is not installed: no row `small`")
        return []
    script = os.path.join(files.scratch, "paths.lua")
    with open(script, "w", encoding="utf-8") as file:
        paths = ", ".join(f'"/{name_of(data)}"' for data in files.middle)
        file.write(f"paths = {{ {paths} }}\nat = 0\nfunction request()\n  at = at % #paths + 1\n  return wrk.format('GET', paths[at])\nend\n")

    def load(server):
        out = subprocess.run(["wrk", "-t1", "-c64", "-d4s", "-s", script, f"http://127.0.0.1:{server.port}"], check=True,
                             capture_output=True, text=True).stdout
        done, seconds = re.search(r"(\d+) requests in ([\d.]+)s", out).groups()
        if "Non-2xx" in out:
            raise SystemExit(f"{server.name}: {out}")
        return int(done), float(seconds)
    rows = loaded(all_servers, files, options, "small", load)
    return [{"row": r["row"], "server": r["server"], "requests_per_s": round(r["rate"]), "cpu_us_per_request": round(r["cpu_s"] * 1e6, 1),
             "memory_mib": r["memory_mib"]} for r in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the program `anabranch-minicache`")
    parser.add_argument("--only", default="start,crash,bytes,small")
    parser.add_argument("--mb", type=int, default=1000, help="size of the large object")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--starts", type=int, default=15)
    parser.add_argument("--crashes", type=int, default=7)
    parser.add_argument("--json", help="writes the rows to a file, too")
    options = parser.parse_args()
    testbed.install_cleanup()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    program = os.path.abspath(options.bin)
    files = Files(program, options.mb)
    all_servers = servers(program, files)
    if any(server.name == "varnish" for server in all_servers):
        testbed.Place().start(["nginx", "-p", files.scratch, "-c", f"{files.scratch}/behind.conf"], f"{files.scratch}/behind.log")
    load = os.getloadavg()[0]
    rows = []
    parts = {"start": start, "crash": crash, "bytes": large_bytes, "small": small}
    try:
        for name in options.only.split(","):
            rows += parts[name](all_servers, files, options)
    finally:
        # The workers of nginx outlive a parent that is killed.
        testbed.stop([server.child for server in all_servers if server.child])
    print(f"load at the start {load:.1f}, at the end {os.getloadavg()[0]:.1f}\n")
    for kind in dict.fromkeys(row["row"] for row in rows):
        those = [row for row in rows if row["row"] == kind]
        keys = [key for key in those[0] if key not in ("row", "server")]
        print(f"| {kind} | {' | '.join(keys)} |\n| --- |{' --- |' * len(keys)}")
        for row in those:
            print(f"| {row['server']} | {' | '.join(str(row[key]) for key in keys)} |")
        print()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"load": load, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
