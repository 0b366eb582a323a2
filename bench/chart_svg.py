"""The picture of chart.py: horizontal bars with their numbers, as SVG without scripts, links or fonts of its own."""

import textwrap
from html import escape

WIDTH, HEIGHT = 800, 560
#: The groups of idle links.
IDLE = ("equal", "unequal", "lossy")
ROW, BAR = 23, 13
#: A card of its own colour: readable wherever it is put, and following the reader's scheme where that is known.
STYLE = """
text { font: 12.5px system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.head { font-size: 16px; font-weight: 600 } .ours { font-weight: 600 } .note { font-size: 11.5px; fill: #59636e }
.card { fill: #ffffff; stroke: #d1d9e0 }
.number { stroke: #ffffff; stroke-width: 4; paint-order: stroke } .warn { fill: #cf222e }
.bar { fill: #b4bcc6 } .bar.ours { fill: #2f7ae5 }
.range { stroke: #1f2328; stroke-width: 1.2; opacity: .6 } .mark { stroke: #59636e; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .note { fill: #9aa4af } .card { fill: #0d1117; stroke: #3d444d }
.number { stroke: #0d1117 } .warn { fill: #ff7b72 } .bar { fill: #59626d } .bar.ours { fill: #4493f8 }
.range { stroke: #f0f6fc } .mark { stroke: #9aa4af } }
"""


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(kind, x, y, to_x, to_y):
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def bars(left, x, y, scale, title, rows, mark, mark_text, show):
    """A group: bars begin at `x`, with `scale` pixels a unit; rows are (name, (median, least, most), ours)."""
    top, bottom = y + 10, y + 10 + ROW * len(rows)
    parts = [text(left, y, title, "note"), line("mark", x + mark * scale, top - 4, x + mark * scale, bottom + 2),
             text(x + mark * scale, bottom + 14, mark_text, "note", "middle")]
    for n, (name, found, ours) in enumerate(rows):
        at, kind = top + n * ROW, "ours" * ours
        parts.append(text(x - 8, at + BAR, name, kind, "end"))
        if not found:
            parts.append(text(x + 4, at + BAR, "failed", "warn"))
            continue
        middle, least, most = (value * scale for value in found)
        parts += [f'<rect class="bar {kind}" x="{x}" y="{at + 2}" width="{middle:.1f}" height="{BAR}" rx="2"/>',
                  line("range", x + least, at + 2 + BAR / 2, x + most, at + 2 + BAR / 2),
                  text(x + max(middle, most) + 6, at + BAR, show(found[0]), f"number {kind}")]
    return parts


def draw(groups, size, notes, control_holds):
    """Of groups `equal`, `unequal`, `lossy`, `shared`, each (links, rows, mark); `size` is the file's length but for `lossy`."""
    seconds = lambda v: f"{v:.1f} s"
    longest = lambda *keys: max(value for key in keys for _, found, _ in groups[key][1] for value in (*found, 1))
    most = longest("equal", "unequal")
    parts = [f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
             text(24, 36, "Time of a download", "head"),
             text(24, 55, f"{size / 1e6:.0f} MB over two idle links, a source behind each; shorter is better", "note"),
             text(438, 36, "What a TCP neighbour keeps", "head"),
             text(438, 55, "of a link that it shares with a download from three sources", "note")]
    for key, y in (("equal", 86), ("unequal", 282)):
        name, rows, ideal = groups[key]
        parts += bars(24, 168, y, 186 / most, name, rows, ideal, f"{ideal:.1f} s: both links full", seconds)
    name, rows, ideal = groups["lossy"]
    parts += [text(438, 262, "40 MB where one packet in a thousand is lost", "note"),
              *bars(438, 594, 282, 140 / longest("lossy"), name.split(" ms, queue")[0] + " ms, loss 0.1 %, BBR servers", rows,
                    ideal, f"{ideal:.1f} s: both links full", seconds)]
    name, rows, fair = groups["shared"]
    widest = max([75, *(value for _, found, _ in rows for value in found)])
    parts += bars(438, 594, 86, 140 / widest, name, rows, fair, "50 %: what one TCP leaves", lambda v: f"{v:.0f} %")
    said = ["The neighbour is one curl that began before. The control, three curls, must leave it 20 to 30 % "
            "(four equal flows: 25 %).", "Mirrors: nginx, over TCP. mmTP: anabranch serve, over UDP."]
    if not control_holds:
        said.append("THE CONTROL DID NOT: these shares do not count.")
    y = 478
    for words in (*said, *notes):
        for part in textwrap.wrap(words.replace(" %", "\u00a0%"), 125):
            parts.append(text(24, y, part, "warn" if words.startswith("THE CONTROL") else "note"))
            y += 16
    label = "Time of a download over two links, and what a TCP neighbour keeps meanwhile"
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img" aria-label="{label}">\n<title>{label}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n')
