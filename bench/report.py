"""Results to tables: bench/results.json, and the pages of measurements between their markers.

Each table stands whole on one page, between `<!-- table:KEY -->` and `<!-- /table:KEY -->`. docs/performance.md shows parts of
them: `<!-- part:KEY head="…" rows="…" columns="…" -->` holds three regular expressions, for the first heading of a table, for
the names of its rows and for the headings of its columns.
"""

import glob
import json
import os
import re
import statistics

import markup
import proxy_report

#: The pages with tables: the overview, and all rows.
OVERVIEW, PAGES = "docs/performance.md", "docs/measurements/*.md"


def load(root):
    try:
        with open(os.path.join(root, "bench/results.json"), encoding="utf-8") as text:
            return json.load(text)
    except FileNotFoundError:
        return {}


def save(root, key, result):
    """Writes both files; each is replaced whole, so that an interruption leaves no half.

    In both this table alone: what was measured another day, or meanwhile, stays as it is.
    """
    results = load(root) | {key: result}
    replace(os.path.join(root, "bench/results.json"), json.dumps(results, indent=1) + "\n")
    insert(root, {key: table(key, result)})


def insert(root, tables):
    """Puts these tables, and the parts of them, between their markers."""
    missing = set(tables)
    for path in pages(root):
        body = made = read(path)
        for key, text in tables.items():
            if marked(key).search(made):
                missing.discard(key)
            made = marked(key).sub(lambda m, text=text: f"{m.group(1)}{text}\n{m.group(3)}", made)
            made = parts(key).sub(lambda m, text=text: f"{m.group(1)}{part(text, *m.group(2, 3, 4))}\n{m.group(6)}", made)
        if made != body:
            replace(path, made)
    if missing:
        raise SystemExit(f"no page has markers for table {', '.join(sorted(missing))}")


def differing(root):
    """The tables and parts that are not what the raw results say: the next run would bring old rows back."""
    bodies, wrong = [read(path) for path in pages(root)], []
    for key, result in load(root).items():
        made = table(key, result)
        if not any(found.group(2) == made + "\n" for body in bodies for found in marked(key).finditer(body)):
            wrong.append(f"table {key}")
        shown = [found for body in bodies for found in parts(key).finditer(body)]
        wrong += [f"part of {key}" for found in shown if found.group(5) != part(made, *found.group(2, 3, 4)) + "\n"]
    return wrong


def pages(root):
    """The files with tables: the overview, then the others."""
    return [os.path.join(root, OVERVIEW), *sorted(glob.glob(os.path.join(root, PAGES)))]


def read(path):
    with open(path, encoding="utf-8") as text:
        return text.read()


def marked(key):
    return re.compile(rf"(<!-- table:{key} -->\n)(.*?)(<!-- /table:{key} -->)", re.DOTALL)


def parts(key):
    return re.compile(rf'(<!-- part:{key} head="(.*?)" rows="(.*?)" columns="(.*?)" -->\n)(.*?)(<!-- /part:{key} -->)', re.DOTALL)


def part(made, head, rows, columns):
    """Some rows and columns of the tables in `made`, and when they were measured. The first column is always there."""
    found = []
    for lines in re.findall(r"(?:^\|.*\n)+", made, re.MULTILINE):
        names, _, *body = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in lines.splitlines()]
        shown = [0, *(n for n, name in enumerate(names) if n and re.search(columns, name))]
        kept = [[row[n] for n in shown] for row in body if re.search(rows, row[0])]
        if re.search(head, names[0]) and len(shown) > 1 and kept:
            found.append(markup.table([names[n] for n in shown], kept))
    if not found:
        raise SystemExit(f"no table has such a part: {head}; {rows}; {columns}")
    when = re.search(r"<sub>(.*?)[;.]", made)
    return "\n" + "\n\n".join([*found, f"<sub>{when.group(1)}.</sub>" if when else ""]).rstrip() + "\n"


def replace(path, text):
    """Writes a file whole, or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(path + ".new", path)


def table(key, result):
    if key in proxy_report.TABLES:
        return f"\n{proxy_report.TABLES[key](result)}\n\n{proxy_report.conditions(result)}\n"
    if key == "n1":
        return f"\n{_forwarders(result)}\n\n{proxy_report.conditions(result)}\n"
    made = {"b": _loopback, "c": _links, "d": _stall, "e": _corrupt, "g": _fairness, "h": _idle, "i": _shared, "j": _polite}.get(key, _printed)(result)
    return f"\n{made}\n\n{_conditions(result)}\n"


def _good(runs):
    return [r for r in runs if "failed" not in r]


def in_time(runs):
    """Those whose links were in time; where there is none, what there is, which the line below the table says."""
    return [run for run in _good(runs) if not run["faults"]] or _good(runs)


def _median(runs, value):
    return statistics.median(value(r) for r in runs)


def spread(runs):
    """The median and the range of their times."""
    walls = [r["wall_s"] for r in runs]
    return f"{statistics.median(walls):.2f} ({min(walls):.2f}–{max(walls):.2f})"


def _outcome(runs):
    """What happened in every run, worst first."""
    kinds = set()
    for run in runs:
        if run.get("failed") or run.get("timed_out"):
            kinds.add("did not finish")
        elif run["rc"] != 0:
            kinds.add(f"refused, exit {run['rc']}")
        else:
            kinds.add("correct" if run["right"] else "**corrupt file accepted**")
    return "; ".join(sorted(kinds))



def _rows(result, cells):
    """A row for each program: measured columns where a run ended, its outcome always last."""
    width, rows = None, []
    for label, runs in result["runs"].items():
        good = _good(runs)
        measured = cells(good) if good else None
        width = width or (len(measured) if measured else None)
        rows.append((label, measured, _outcome(runs)))
    return [[label, *(measured or ["–"] * (width or 0)), outcome] for label, measured, outcome in rows]


def _ours(result, word="anabranch get"):
    return _good(result["runs"].get(word, []))


def _loopback(result):
    gigabytes = result["bytes"] / 1e9

    def cells(runs):
        client = _median(runs, lambda r: r["cpu_s"]) / gigabytes
        total = _median(runs, lambda r: r["cpu_s"] + r["cpu_sources_s"]) / gigabytes
        rate = gigabytes * 8 / _median(runs, lambda r: r["wall_s"])
        return [spread(runs), f"{rate:.2f}", f"{client:.2f}", f"{total:.2f}",
                f"{_median(runs, lambda r: r['rss_mib']):.0f}"]

    rows = _rows(result, cells)
    for row in rows:
        row.insert(1, "yes" if result["verifies"].get(row[0]) else "no")
    rows.append(["iroh-blobs 0.104 (cited)", "yes", "5.3", "1.3–1.6", "4.7–5.3", "8.6–9.7", "–", "correct"])
    head = [f"{gigabytes:g} GB over loopback", "verified", "wall s (range)", "Gbit/s", "CPU s/GB fetching",
            "CPU s/GB all", "peak MiB", "file"]
    text = [markup.table(head, rows)]
    ours = _ours(result)
    if ours:
        cpu = _median(ours, lambda r: r["cpu_s"] + r["cpu_sources_s"]) / gigabytes
        rate = gigabytes * 8 / _median(ours, lambda r: r["wall_s"])
        peak = max(r["rss_mib"] for r in ours)
        text += ["", markup.verdict(f"at most 2.0 CPU s/GB over all processes: {cpu:.2f}", cpu <= 2.0),
                 markup.verdict(f"at least 5 Gbit/s: {rate:.2f}", rate >= 5),
                 markup.verdict(f"less than 64 MiB in `get`: {peak:.0f}", peak < 64)]
    return "\n".join(text)


def _links(result):
    parts = []
    for bed in result["beds"]:
        mbit, ideal = bed["mbit"], bed["ideal_s"]

        def cells(runs, bed=bed, mbit=mbit, ideal=ideal):
            wall = _median(runs, lambda r: r["wall_s"])
            rate = bed["bytes"] * 8 / wall / 1e6
            return [spread(runs), f"{rate:.1f}", f"{100 * ideal / wall:.1f} %", f"{100 * rate / sum(mbit):.1f} %",
                    "/".join(f"{statistics.median(link) / 1e6:.0f}" for link in zip(*(r["carried"] for r in runs)))]

        rows = _rows(bed, cells)
        equal = len(set(mbit)) == 1
        if equal:
            rows.append(["iroh-blobs 0.104 (cited)", "26.9–33.9", "94.5–119", "33–41 %", "32–40 %", "–", "correct"])
        name = "/".join(map(str, mbit))
        head = [f"{bed['bytes'] / 1e6:.0f} MB, links {name}", "wall s (range)", "Mbit/s", "of payload ideal",
                "of raw rate", "MB by link", "file"]
        parts += [f"Links of {name} Mbit/s; ideal {ideal:.2f} s:", "", markup.table(head, rows), ""]
        ours = _ours(bed, "anabranch get --disjoint")
        if ours:
            share, least = 100 * ideal / _median(ours, lambda r: r["wall_s"]), 97 if equal else 95
            parts += [markup.verdict(f"at least {least} % of what the links carry: {share:.1f} %",
                               share >= least and all(r["right"] for r in ours)), ""]
    return "\n".join(parts).rstrip()


def _against(result, what):
    def cells(runs):
        wall = _median(runs, lambda r: r["wall_s"])
        return [spread(runs), f"{100 * (wall / result['ideal_s'] - 1):+.1f} %"]

    head = [what, "wall s (range)", "over ideal", "file"]
    return markup.table(head, _rows(result, cells))


def _stall(result):
    made = _against(result, f"{result['bytes'] / 1e6:.0f} MB, one source stopped after {result['after_s']:g} s")
    text = [f"Ideal {result['ideal_s']:.2f} s:", "", made]
    ours = _ours(result, "anabranch get --disjoint")
    if ours:
        over = 100 * (_median(ours, lambda r: r["wall_s"]) / result["ideal_s"] - 1)
        text += ["", markup.verdict(f"within 5 % of the ideal: {over:+.1f} %", over <= 5 and all(r["right"] for r in ours))]
    return "\n".join(text)


def _corrupt(result):
    made = _against(result, f"{result['bytes'] / 1e6:.0f} MB, one of three sources lies")
    text = [f"Ideal with the two honest sources {result['ideal_s']:.2f} s:", "", made]
    ours = _ours(result, "anabranch get --disjoint")
    if ours:
        over = 100 * (_median(ours, lambda r: r["wall_s"]) / result["ideal_s"] - 1)
        named = all(r["named"] == [result["liar"]] for r in ours)
        text += ["", markup.verdict("the file is correct", all(r["right"] for r in ours)),
                 markup.verdict("the culprit, and nobody else, is named", named),
                 markup.verdict(f"within 5 % of the two-source ideal: {over:+.1f} %", over <= 5)]
    return "\n".join(text)


def _json_rows(result):
    rows = [json.loads(line) for line in result["output"].splitlines()]
    named = ("version", "event")
    return [{k: v for k, v in row.items() if k not in named} for row in rows if row.get("event") != "summary"]


def _cell(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _printed(result):
    """What a program printed: a Markdown table stays, JSON rows become one."""
    if result["output"].startswith("|"):
        return result["output"].rstrip()
    rows = _json_rows(result)
    head = list(dict.fromkeys(key for row in rows for key in row))
    return markup.table([h.replace("_", " ") for h in head], [[_cell(row.get(h)) for h in head] for row in rows])


def _fairness(result):
    """A row for each case and controller, of what `lab run --json` has for each of their metrics."""
    table, faults = {}, {}
    for row in _json_rows(result):
        key, name = (row["case"], row["controller"]), f"{row['metric'].replace('_', ' ')} {row['unit']}".rstrip()
        value, sd, model = (_cell(row[k], 2 if row["metric"] == "loss" else 1) for k in ("value", "sd", "model"))
        share = {f"{name} (sd)": f"{value} ({sd})", f"1/RTT {row['unit']}": model}
        cells = share if row["metric"] == "share" else {name: value}
        table.setdefault(key, {}).update(cells)
        faults.setdefault(key, {}).update(dict.fromkeys(row["faults"]))
    head = list(dict.fromkeys(name for cells in table.values() for name in cells))
    rows = [[*key, *(cells.get(name, "–") for name in head), "; ".join(faults[key]) or "met"]
            for key, cells in table.items()]
    return markup.table(["case", "controller", *head, "conditions"], rows)


#: Against the best program that couples nothing.
IDLE_GOAL = 1.02
#: Points that our share of a shared link may be off a half; and that of the control off N parts of N + 1.
SHARE_GOAL, CONTROL_GOAL = 4, 5
OURS = ["anabranch, mmTP", "anabranch, mirrors"]
UNCOUPLED = "anabranch, mmTP --cc cubic --groups none"
NOBODY = "nobody"
#: The links of the chart: three pairs of table h, with what they carry in Mbit/s; and a shared one of table i, beside which
#: other programs are measured too.
CHART_IDLE = {"2×50 Mbit/s, RTT 50 ms, queue 50 ms": 100, "100+20 Mbit/s, RTT 20+80 ms, queue 60 ms": 120,
              "2×50 Mbit/s, RTT 50 ms, queue 50 ms, loss 0.1 %, BBR servers": 100}
CHART_SHARED = "20 Mbit/s, RTT 20 ms, queue 20 ms, 3 sources"
OTHERS = ["axel -n3", "aria2 -s3", "aria2 -s16 -x16"]
BACKGROUND = [f"{label} --background" for label in OURS]
#: Percent: of the link that a get in the background uses where nobody else wants it, and what it leaves to a curl of that
#: which the curl has beside nobody. How far a limited rate may be off.
USED_GOAL, KEPT_GOAL, LIMIT_GOAL = 90, 90, 2


def _plain(label):
    """`aria2 -s2` and `aria2 -s3` are one column."""
    return re.sub(r"^(one|two|three) curls?", "N curls", re.sub(r"-s\d", "-sN", label))


def _verdicts(met):
    """How many of the rows have met their goal, of each program of ours."""
    said = ", ".join(f"{label.removeprefix('anabranch, ')} {sum(rows)} of {len(rows)}" for label, rows in met.items())
    return said, all(all(rows) for rows in met.values())


def _idle(result):
    """Times, and ours against the best that couples nothing: curl over one path, over several aria2, MPTCP, mmTP."""
    columns = ["curl", "aria2 -sN", "aria2 -sN -k1M", "MPTCP, CUBIC senders", "MPTCP, BBR senders", UNCOUPLED, *OURS]
    rows, met = [], {label: [] for label in OURS}
    for bed in result["beds"]:
        walls = {_plain(label): _median(in_time(runs), lambda r: r["wall_s"])
                 for label, runs in bed["runs"].items() if _good(runs)}
        beside = ["curl"] if bed["sources"] == 1 else [c for c in columns if c not in ("curl", columns[4], *OURS)]
        best = min((walls[c] for c in beside if c in walls), default=None)
        ratios = []
        for label in OURS:
            ratio = walls[label] / best if best and label in walls else None
            met[label].append(ratio is not None and round(ratio, 3) <= IDLE_GOAL)
            ratios.append("–" if ratio is None else f"{ratio:.3f} {markup.word(met[label][-1])}")
        rows.append([f"{bed['bytes'] / 1e6:.0f} MB: {bed['name']}", *(_cell(walls.get(c)) for c in columns), *ratios])
    said, all_met = _verdicts(met)
    head = ["idle links; wall s", *columns[:5], "mmTP, uncoupled", *(label.removeprefix("anabranch, ") for label in OURS),
            *(f"{label.removeprefix('anabranch, ')} / best" for label in OURS)]
    return "\n".join([markup.table(head, rows), "",
                      markup.verdict(f"at most {IDLE_GOAL} times the best that couples nothing: {said}", all_met)])


def _shared(result):
    """What each takes of a link beside one curl: N flows of TCP take N parts of N + 1, ours should take half."""
    columns = ["N curls", UNCOUPLED, *OURS]
    rows, beside, met = [], [], {label: [] for label in OURS}
    for bed in result["beds"]:
        takes = {_plain(label): [100 * (1 - run["kept"]) for run in in_time(runs)]
                 for label, runs in bed["runs"].items() if _good(runs)}
        due = 100 * bed["sources"] / (bed["sources"] + 1)
        right = "N curls" in takes and abs(statistics.median(takes["N curls"]) - due) <= CONTROL_GOAL
        cells = []
        for column in columns:
            shares = takes.get(column)
            text = f"{statistics.median(shares):.0f} ({min(shares):.0f}–{max(shares):.0f})" if shares else "–"
            if column in OURS:
                ok = bool(shares) and right and abs(statistics.median(shares) - 50) <= SHARE_GOAL
                met[column].append(ok)
                text += f" {markup.word(ok)}" if right else " ? (control wrong)"
            cells.append(text)
        rows.append([bed["name"], f"{due:.0f}", *cells])
        others = {label: takes[_plain(label)] for label in OTHERS if label in bed["runs"]}
        if others:
            each = ", ".join(f"{label} {statistics.median(s):.0f} ({min(s):.0f}–{max(s):.0f})" for label, s in others.items())
            beside.append(f"* Other programs, {bed['name']}, in %: {each}")
    said, all_met = _verdicts(met)
    head = ["beside one curl: % that it takes", "N TCP flows would", "N curls (control)", "mmTP, uncoupled",
            *(label.removeprefix("anabranch, ") for label in OURS)]
    goal = f"50 ± {SHARE_GOAL} %, where the control is within {CONTROL_GOAL} points: {said}"
    return "\n".join([markup.table(head, rows), "", *beside, markup.verdict(goal, all_met)])


def _polite(result):
    """A call beside one program, and with a curl too, a table for each link; then files whose rate is limited."""
    links, parts, used, kept = {}, [], {label: [] for label in BACKGROUND}, {label: [] for label in BACKGROUND}
    for bed in result["beds"]:
        if "curl" in bed:
            links.setdefault(bed["name"].partition(", a call")[0], {})[bed["curl"]] = bed
    for name, beds in links.items():
        runs = {curl: {label: in_time(runs) for label, runs in bed["runs"].items() if _good(runs)} for curl, bed in beds.items()}
        middle = lambda curl, label, key, of=runs: _median(of[curl][label], lambda r: r[key]) if label in of.get(curl, {}) else None
        curl_alone, rows = middle(True, NOBODY, "curl_mbit"), []
        for label in dict.fromkeys(label for bed in beds.values() for label in bed["runs"]):
            row = [label]
            for curl in (False, True):
                p99 = [run["p99_ms"] for run in runs.get(curl, {}).get(label, [])]
                row += [_cell(middle(curl, label, "p50_ms"), 0), f"{statistics.median(p99):.0f} ({min(p99):.0f}–{max(p99):.0f})" if p99 else "–",
                        _cell(middle(curl, label, "lost_percent"), 1), *([_cell(middle(curl, label, "curl_mbit"), 1)] if curl else []),
                        _cell(None if label == NOBODY else middle(curl, label, "tool_mbit"), 1)]
            rows.append(row)
            if label in BACKGROUND:
                takes, leaves = middle(False, label, "tool_mbit"), middle(True, label, "curl_mbit")
                used[label].append(takes is not None and 100 * takes / beds[False]["mbit"] >= USED_GOAL)
                kept[label].append(bool(leaves and curl_alone) and 100 * leaves / curl_alone >= KEPT_GOAL)
        head = [name, "call: RTT p50, ms", "p99 (range)", "lost %", "program, Mbit/s",
                "call with a curl: p50", "p99 (range)", "lost %", "curl, Mbit/s", "program, Mbit/s"]
        parts += [markup.table(head, rows), ""]
    for goal, met in ((f"in the background at least {USED_GOAL} % of the link without the curl", used),
                      (f"in the background the curl keeps at least {KEPT_GOAL} % of what it has beside nobody", kept)):
        said, all_met = _verdicts(met)
        parts += [markup.verdict(f"{goal}: {said}", all_met)]
    rows, held = [], []
    for bed in (bed for bed in result["beds"] if "limit" in bed):
        for label, runs in bed["runs"].items():
            rates = [run["bytes_s"] for run in in_time(runs)]
            if rates:
                held += [round(100 * abs(rate / bed["limit"] - 1), 3) <= LIMIT_GOAL for rate in rates]
                rows.append([label, bed["name"].removesuffix(", limited"), ", ".join(f"{rate / 1e3:.0f}" for rate in rates),
                             f"{bed['limit'] / 1e3:.0f}"])
    if rows:
        parts += ["", markup.table(["limited", "links", "kB/s over the last link, each run", "limit"], rows), "",
                  markup.verdict(f"within {LIMIT_GOAL} % of the limit: {sum(held)} of {len(held)} runs", all(held))]
    return "\n".join(parts)


#: Of a bare relay, and times a forwarder of NDN.
FORWARDER_GOALS = 0.7, 5


def _forwarders(result):
    parts, verdicts = [], []
    for bed in result["beds"]:
        rates = {name: _median(_good(runs), lambda run: run["packets"] / run["cpu_s"])
                 for name, runs in bed["runs"].items() if _good(runs)}
        ndn = {name: rate for name, rate in rates.items() if not name.startswith(("anabranch", "bare"))}
        rows = []
        for name, rate in rates.items():
            runs = _good(bed["runs"][name])
            lost = sum(run["lost"] for run in runs) / sum(run["packets"] + run["lost"] for run in runs)
            relay = rates.get(name.replace("anabranch forward", "bare relay") if name.startswith("anabranch") else "bare relay")
            rows.append([name, f"{rate:,.0f}", f"{rate * bed['bytes'] * 8 / 1e9:.2f}", f"{rate / relay:.2f}" if relay else "–",
                         *(f"{rate / rates[other]:.1f}" for other in ndn), f"{100 * lost:.2f} %"])
            if not name.startswith("anabranch"):
                continue
            verdicts.append(markup.verdict(f"{bed['bytes']:,} bytes, {name}: at least {FORWARDER_GOALS[0]} of the bare relay: {rate / relay:.2f}",
                                     rate / relay >= FORWARDER_GOALS[0]))
            verdicts += [markup.verdict(f"{bed['bytes']:,} bytes, {name}: at least {FORWARDER_GOALS[1]} times {other}: {rate / rates[other]:.1f}",
                                  rate / rates[other] >= FORWARDER_GOALS[1]) for other in ndn]
        head = [f"packets of {bed['bytes']:,} bytes", "a CPU second", "Gbit a CPU second", "of the relay", *(f"times {name}" for name in ndn), "lost"]
        parts += [markup.table(head, rows), ""]
    return "\n".join([*parts, *verdicts])


def _conditions(result):
    """One line under each table: what it was measured on, and how quiet that was."""
    m = result["machine"]
    rows = [runs for bed in result.get("beds", [result]) for runs in bed.get("runs", {}).values()]
    every = [run for runs in rows for run in runs]
    commits = ", ".join(sorted({run["commit"] for run in every if "commit" in run})) or m["commit"] or "none"
    parts = [f"{m['date']}, commit {commits}", f"{m['cores']} cores of {m['cpu']}",
             f"Linux {m['kernel']}"]
    runs = _good(every)
    if runs:
        versions = ", ".join(f"{name.removesuffix('c') if name == 'aria2c' else name} {v}"
                             for name, v in m["versions"].items() if v)
        parts += [f"median of {max(map(len, rows))}",
                  f"peers: {versions}, TCP congestion control {m['tcp_cc']}"]
        if m.get("scheduling"):
            parts.append(f"{m['scheduling']} scheduling")
        late = sum(bool(run.get("faults")) for run in runs)
        if late:
            alone = sum(all(run.get("faults") for run in in_time(row)) for row in rows if _good(row))
            parts.append(f"links late in {late} of {len(runs)} runs, which count in the {alone} cells alone that have no other")
        others = [r["others_percent"] for r in runs]
        parts.append(f"CPU taken by others meanwhile: median {statistics.median(others):.0f} %, at most "
                     f"{max(others):.0f} %")
    return f"<sub>{'; '.join(parts)}.</sub>"
