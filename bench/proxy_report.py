"""The tables of `bench/proxy.py`."""

import statistics

import markup

#: The paper's figures in KB/s: 1 KB, 900 KB, 164 MB (doi 10.1109/ICUFN.2017.7993881).
PAPER = {"WiFi alone": (51, 3957, 4472), "LTE alone": (20, 2948, 3277), "MPTCP, direct": (75, 5905, 6875),
         "proxy +0 ms": (57, 5048, 6563), "proxy +50 ms": (13, 2820, 5091), "proxy +100 ms": (7.36, 2496, 4299)}
OURS = "anabranch"
#: What we may add to a request on loopback, in ms.
PROCESSING_MS = 0.1
#: Parts of the round trips that a measured time may be above them: timers, the emulator's grid.
LAW = 1.05


def _ok(runs):
    return [run for run in runs if not isinstance(run.get("failed"), str)]


def _mid(runs, value):
    return statistics.median(map(value, runs)) if runs else None


def _ms(us):
    return "–" if us is None else f"{us / 1e3:.2f}" if us < 100e3 else f"{us / 1e3:.0f}"


def _cpu(run):
    return sum(run["cpu_s"].values())


def _names(beds):
    return list(dict.fromkeys(name for bed in beds for name in bed["runs"]))


def latency(result):
    beds, c = result["beds"], result["c_ms"]
    rows, verdicts = [], []
    for name in _names(beds):
        cells = []
        for bed in beds:
            runs = _ok(bed["runs"].get(name, []))
            cells.append(f"{_ms(_mid(runs, lambda r: r['p50_us']))} / {_ms(_mid(runs, lambda r: r['p99_us']))}" if runs else "–")
        rows.append([name, *cells])
    ours = [name for name in _names(beds) if name.startswith(OURS)]
    for name in ours:
        runs, direct = _ok(beds[0]["runs"].get(name, [])), _ok(beds[0]["runs"].get("direct", []))
        if runs and direct:
            more = (runs[0]["p50_us"] - direct[0]["p50_us"]) / 1e3
            verdicts.append(markup.verdict(f"{name}: at most {PROCESSING_MS} ms more than direct on loopback (p50): {more:.2f} ms",
                                            more <= PROCESSING_MS))
        for bed in beds[1:]:
            runs = _ok(bed["runs"].get(name, []))
            if runs:
                law, took = c + bed["s_ms"], runs[0]["p50_us"] / 1e3
                verdicts.append(markup.verdict(f"{name}: C + S = {law} ms: {took:.1f} ms", took <= law * LAW))
    head = ["1 KB, new connection, p50 / p99 ms", *(bed["name"] for bed in beds)]
    return "\n".join([markup.table(head, rows), "", *verdicts])


def _rate(run):
    return run["answered"] / run["seconds"] if run["seconds"] else 0


def concurrent(result):
    parts = []
    for kept in (False, True):
        beds = [bed for bed in result["beds"] if bed["kept"] == kept]
        rows = []
        for bed in beds:
            for name, every in bed["runs"].items():
                runs = _ok(every)
                if not runs:
                    rows.append([f"{bed['workers']:,}: {name}", *["–"] * 6, every[0]["failed"][:60]])
                    continue
                run = runs[0]
                total = run["answered"]
                cpu = 1e6 * _cpu(run) / total if total and run["cpu_s"] else None
                split = "+".join(f"{1e6 * s / total:.0f}" for s in run["cpu_s"].values()) if cpu and len(run["cpu_s"]) > 1 else ""
                failed = sum(run["failed"].values())
                rows.append([f"{bed['workers']:,}: {name}", f"{_rate(run):.0f}", "–" if cpu is None else f"{cpu:.0f}",
                             split or "–", _ms(run["p50_us"]), _ms(run["p99_us"]), _ms(run["max_us"]),
                             f"{run['pss'] / 1e6:.0f}" if run["pss"] else "–",
                             "all" if not failed else f"{failed} failed: {next(iter(run['failed']))[:40]}"])
        if rows:
            what = "connections that are kept" if kept else "new connections"
            head = [f"at a time, {what}", "req/s", "CPU µs a request", "server+client", "p50 ms", "p99 ms", "max ms", "PSS MB", "answered"]
            rows = [row + ["–"] * (len(head) - len(row)) for row in rows]
            parts += [markup.table(head, rows), ""]
    for name in dict.fromkeys(n for bed in result["beds"] for n in bed["runs"] if n.startswith(OURS)):
        runs = [run for bed in result["beds"] if not bed["kept"] for run in bed["runs"].get(name, [])]
        good = [run for run in _ok(runs) if not run["failed"]]
        parts.append(markup.verdict(f"{name}: all answered up to {max((r.get('workers', 0) for r in runs), default=0):,} at a time: "
                                     f"{len(good)} of {len(runs)} rows", len(good) == len(runs)))
    return "\n".join(parts)


def flow(result):
    gigabytes, rows = result["bytes"] / 1e9, []
    for name, every in result["runs"].items():
        cells = [name]
        for up in (False, True):
            runs = [run for run in _ok(every) if run["up"] == up and run["answered"]]
            if not runs:
                cells += ["–"] * 2
                continue
            rates = [gigabytes * 8 / run["seconds"] for run in runs]
            cpu = _mid(runs, _cpu) / gigabytes
            cells += [f"{statistics.median(rates):.2f} ({min(rates):.2f}–{max(rates):.2f})", f"{cpu:.2f}" if runs[0]["cpu_s"] else "–"]
        rows.append(cells)
    head = [f"{gigabytes:g} GB over loopback", "down, Gbit/s (range)", "CPU s/GB", "up, Gbit/s (range)", "CPU s/GB"]
    return markup.table(head, rows)


def idle(result):
    rows, each = [], {}
    for bed in result["beds"]:
        for name, every in bed["runs"].items():
            if name == "direct":
                continue
            runs = _ok(every)
            if not runs:
                rows.append([f"{bed['count']:,}: {name}", "–", "–", "–", "–", every[0]["failed"][:60]])
                continue
            run = runs[0]
            per = (run["pss"] - run["pss_before"]) / max(run["answered"], 1)
            if run["answered"] == bed["count"]:
                each.setdefault(bed["count"], {})[name] = per
            failed = sum(run["failed"].values())
            rows.append([f"{bed['count']:,}: {name}", f"{run['answered']:,}", f"{run['pss'] / 1e6:.1f}", f"{per:,.0f}",
                         f"{run['idle_cpu_percent']:.1f}", "all" if not failed else f"{failed} failed: {next(iter(run['failed']))[:40]}"])
    parts = [markup.table(["idle connections", "there", "PSS MB", "bytes of each", "CPU % of a core", "came"], rows), ""]
    for count, by_name in each.items():
        peers = {name: per for name, per in by_name.items() if not name.startswith(OURS)}
        for name in by_name.keys() - peers.keys():
            if peers:
                best = min(peers, key=peers.get)
                parts.append(markup.verdict(f"{count:,}: {name} at most the best peer ({best}, {peers[best]:,.0f} bytes): "
                                             f"{by_name[name]:,.0f}, two processes", by_name[name] <= peers[best]))
    return "\n".join(sorted(parts[:2], key=parts.index) + sorted(parts[2:]))


def _kbs(run, size):
    return size / 1e3 / (run["p50_us"] / 1e6) if run.get("p50_us") else None


def _quantiles(run):
    return f"{run['p50_us'] / 1e3:.0f} / {run['p90_us'] / 1e3:.0f} / {run['max_us'] / 1e3:.0f}"


def paper(result):
    rows, kbs = [], {}
    for name, every in result["runs"].items():
        runs = _ok(every)
        if not runs:
            rows.append([name, *["–"] * 7, every[0]["failed"][:60]])
            continue
        run = runs[0]
        kbs[name] = [_kbs(run["1 KB kept"], 1_000), _kbs(run["900 KB"], 900_000), run["164 MB"]["bytes"] / 1e3 / run["164 MB"]["seconds"]]
        said = PAPER.get(name, ("–",) * 3)
        rows.append([name, _quantiles(run["1 KB"]), f"{_kbs(run['1 KB'], 1_000):.1f}", f"{kbs[name][0]:.1f}", str(said[0]),
                     f"{kbs[name][1]:.0f}", str(said[1]), f"{kbs[name][2]:.0f}", str(said[2])])
    head = ["KB/s", "1 KB, new: p50 / p90 / max ms", "1 KB, new", "1 KB, kept", "paper", "900 KB, new", "paper", "164 MB", "paper"]
    verdicts = []
    single = [kbs[name][2] for name in ("WiFi alone", "LTE alone") if name in kbs]
    for name in ("proxy +50 ms", "proxy +100 ms"):
        if name in kbs and single:
            verdicts.append(markup.verdict(f"164 MB, {name}: more than the better single link without a proxy ({max(single):.0f} KB/s): "
                                            f"{kbs[name][2]:.0f} KB/s", kbs[name][2] > max(single)))
    return "\n".join([markup.table(head, rows), "", f"* *proxy* is {result['proxy']}; 1 KB and 900 KB are medians", *verdicts])


def aggregate(result):
    rows, verdicts = [], []
    for bed in result["beds"]:
        # What links carry of packets of 1,500 bytes is 1,448.
        ideal = bed["mbit"] * 1448 / 1500
        for name, every in bed["runs"].items():
            runs = _ok(every)
            if not runs:
                rows.append([f"{bed['name']}: {name}", "–", "–", every[0]["failed"][:60]])
                continue
            rate = _mid(runs, lambda run: run["bytes"] * 8 / 1e6 / run["seconds"])
            busy = _mid(runs, lambda run: run.get("busy_percent", 0))
            rows.append([f"{bed['name']}: {name}", f"{rate:.1f}", f"{100 * rate / ideal:.1f} %", f"{busy:.0f} %"])
            if name != bed["proxy"]:
                continue
            verdicts.append(markup.verdict(f"{bed['name']}: at least {bed['goal']} % of what the links carry: {100 * rate / ideal:.1f} %",
                                            100 * rate / ideal >= bed["goal"]))
    return "\n".join([markup.table(["one download over two links", "Mbit/s", "of what they carry", "machine busy"], rows), "", *verdicts])


TABLES = {"p1": latency, "p2": concurrent, "p3": flow, "p4": idle, "p5": paper, "p6": aggregate}


def conditions(result):
    """One line under each table: what it was measured on, and how quiet that was."""
    m = result["machine"]
    parts = [f"{m['date']}, commit {m['commit'] or 'none'}", f"{m['cores']} cores of {m['cpu']}", f"Linux {m['kernel']}",
             f"TCP congestion control {m['tcp_cc']}", f"load average at its beginning {m['load']:.1f}"]
    shares = [run["others_percent"] for bed in result.get("beds", [result]) for runs in bed.get("runs", {}).values()
              for run in runs if run.get("others_percent")]
    if shares:
        parts.append(f"CPU taken by others meanwhile: median {statistics.median(shares):.0f} %, at most {max(shares):.0f} %")
    if m.get("note"):
        parts.append(m["note"])
    return f"<sub>{'; '.join(parts)}.</sub>"
