"""What must hold of the page and its raw data. `python3 -m unittest discover -s bench`"""

import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import report  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MACHINE = {"date": "2026-01-01", "commit": "c", "cores": 2, "cpu": "x", "kernel": "6", "versions": {}, "tcp_cc": "cubic"}


class Page(unittest.TestCase):
    def test_every_table_is_what_its_raw_data_say(self):
        """A table that was changed by hand comes back as it was with its next run: change both, or neither."""
        self.assertEqual(report.differing(ROOT), [])

    def test_a_table_that_is_saved_leaves_the_others_alone(self):
        """A run of one table once brought rows of a removed controller back into another."""
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "bench"))
            os.makedirs(os.path.join(root, "docs/measurements"))
            page, overview = os.path.join(root, "docs/measurements/get.md"), os.path.join(root, report.OVERVIEW)
            with open(page, "w", encoding="utf-8") as text:
                text.write("".join(f"<!-- table:{key} -->\nby hand\n<!-- /table:{key} -->\n" for key in "af"))
            with open(overview, "w", encoding="utf-8") as text:
                text.write('<!-- part:a head="" rows="^two" columns="^wall$" -->\nby hand\n<!-- /part:a -->\n')
            rows = "| --- | --: | --: |\n| one | 1 | 2 |\n| two | 3 | 4 |\n"
            results = {key: {"output": f"| {key} | wall | peak |\n{rows}", "machine": MACHINE} for key in "af"}
            with open(os.path.join(root, "bench/results.json"), "w", encoding="utf-8") as raw:
                json.dump({"f": results["f"]}, raw)
            report.save(root, "a", results["a"])
            with open(page, encoding="utf-8") as text:
                a, f = text.read().split("<!-- table:f -->")
            self.assertIn("| a |", a)
            with open(overview, encoding="utf-8") as text:
                self.assertIn("| a   | wall |\n| --- | ---: |\n| two |    3 |\n\n<sub>2026-01-01, commit c.</sub>\n", text.read())
            self.assertEqual(f, "\nby hand\n<!-- /table:f -->\n")
            with open(os.path.join(root, "bench/results.json"), encoding="utf-8") as text:
                self.assertEqual(json.load(text), results)
            self.assertEqual(report.differing(root), ["table f"])


class Goals(unittest.TestCase):
    """Ok or not is what the numbers say."""

    def table(self, key, bed):
        return report.table(key, {"beds": [bed], "machine": MACHINE})

    def test_idle_links(self):
        run = lambda wall: [{"wall_s": wall, "others_percent": 0, "faults": []}]
        runs = {"aria2 -s2": run(12), "aria2 -s2 -k1M": run(10.0), "MPTCP, BBR senders": run(8), "curl": run(5),
                report.UNCOUPLED: run(11), report.OURS[0]: run(10.2), report.OURS[1]: run(10.21)}
        made = self.table("h", {"name": "n", "bytes": 1e8, "sources": 2, "runs": runs})
        # Neither senders of another kind nor, over two links, curl are what counts.
        self.assertIn(" 1.020 ok |", made)
        self.assertIn("1.021 **NOT**", made)
        self.assertIn("mmTP 1 of 1, mirrors 0 of 1: **NOT**", made)

    def test_shared_links(self):
        run = lambda kept: [{"kept": kept, "others_percent": 0, "faults": []}]
        runs = {"two curls": run(0.33), report.OURS[0]: run(0.47), report.OURS[1]: run(0.55)}
        made = self.table("i", {"name": "n", "bytes": 1, "sources": 2, "runs": runs})
        self.assertIn("53 (53–53) ok", made)
        self.assertIn("45 (45–45) **NOT**", made)
        late = {"kept": 0.9, "others_percent": 0, "faults": ["late"]}
        runs[report.OURS[0]].append(late)
        made = self.table("i", {"name": "n", "bytes": 1, "sources": 2, "runs": runs})
        self.assertIn("53 (53–53) ok", made)
        self.assertIn("links late in 1 of 4 runs, which count in the 0 cells alone", made)
        wrong = self.table("i", {"name": "n", "bytes": 1, "sources": 2, "runs": {**runs, "two curls": run(0.5)}})
        self.assertIn("? (control wrong)", wrong)
        self.assertIn("mmTP 0 of 1, mirrors 0 of 1: **NOT**", wrong)

    def test_beside_a_call(self):
        run = lambda curl, tool: [{"p50_ms": 40, "p99_ms": 50, "lost_percent": 0, "curl_mbit": curl, "tool_mbit": tool,
                                   "others_percent": 0, "faults": []}]
        background = report.BACKGROUND
        alone = {"name": "L, a call", "curl": False, "mbit": 20, "runs": {background[0]: run(0, 18), background[1]: run(0, 17.9)}}
        beside = {"name": "L, a call and a curl", "curl": True, "mbit": 20,
                  "runs": {report.NOBODY: run(20, 0), background[0]: run(17.9, 2), background[1]: run(18, 2)}}
        limited = {"name": "L, limited", "limit": 1e6,
                   "runs": {"x --limit 1M": [{"bytes_s": rate, "others_percent": 0, "faults": []} for rate in (1.02e6, 979e3)]}}
        made = report.table("j", {"beds": [alone, beside, limited], "machine": MACHINE})
        self.assertIn("without the curl: mmTP --background 1 of 1, mirrors --background 0 of 1: **NOT**", made)
        self.assertIn("beside nobody: mmTP --background 0 of 1, mirrors --background 1 of 1: **NOT**", made)
        self.assertIn("within 2 % of the limit: 1 of 2 runs: **NOT**", made)
        # Nothing is held against those who were not measured.
        self.assertRegex(made, r"nobody +\| +– \| +– \| +– \| +– \|")


if __name__ == "__main__":
    unittest.main()
