"""What every table of the bench is made of: Markdown rows and the words of a verdict."""


def table(head, rows):
    """A Markdown table with columns that line up: the first to the left, the others to the right."""
    rows = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    rule = ["-" * widths[0], *["-" * (w - 1) + ":" for w in widths[1:]]]
    padded = [[c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))] for row in rows]
    padded.insert(1, rule)
    return "\n".join("| " + " | ".join(row) + " |" for row in padded)


def word(met):
    """The laboratory's words (docs/lab.md): ok, NOT, and ? of what cannot be judged."""
    return "ok" if met else "**NOT**"


def verdict(text, met):
    return f"* {text}: {word(met)}"
