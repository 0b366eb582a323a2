"""The module below fsspec, requests and httpx, each the real library; and the programs of the wheel with pandas."""

import importlib.util
import os
import pathlib
import pickle
import tempfile
import unittest

from server import Server, content

DATA = content(2_000_000, 2)
LAB = pathlib.Path(__file__).parents[2]


def needs(*modules: str):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} not installed")


class Libraries(unittest.TestCase):
    def setUp(self) -> None:
        self.one = self.enterContext(Server({"/pub/f": DATA, "/pub/g": DATA[::-1]}))
        self.two = self.enterContext(Server({"/m/f": DATA, "/m/g": DATA[::-1]}))
        self.mirrors = {self.one.url("/pub/"): [self.two.url("/m/")]}

    @needs("fsspec")
    def test_fsspec(self) -> None:
        import fsspec

        url = "anabranch+" + self.one.url("/pub/f")
        with fsspec.open(url, mirrors=self.mirrors) as file:
            file.seek(1_000_000)
            self.assertEqual((file.read(1000), file.size), (DATA[1_000_000:1_001_000], len(DATA)))
        fs, path = fsspec.url_to_fs(url, mirrors=self.mirrors)
        other = path[:-1] + "g"
        self.assertEqual(fs.info(path)["size"], len(DATA))
        self.assertEqual((fs.exists(path), fs.exists(path + "x")), (True, False))
        self.assertEqual(fs.cat([path, other]), {path: DATA, other: DATA[::-1]})
        self.assertEqual(fs.cat_file(path, -10), DATA[-10:])
        parts = fs.cat_ranges([path, other, path, path + "x"], [0, 5, -7, 0], [9, 20, None, 1])
        self.assertEqual(parts[:3], [DATA[:9], DATA[::-1][5:20], DATA[-7:]])
        self.assertIsInstance(parts[3], FileNotFoundError)
        # A mirror may also be named as the file system names its files.
        prefixed = {"anabranch+" + start: others for start, others in self.mirrors.items()}
        many, _ = fsspec.url_to_fs(url, mirrors=prefixed)
        starts = list(range(0, len(DATA), 20_000))
        self.two.requests.clear()
        parts = many.cat_ranges([path] * len(starts), starts, [start + 100 for start in starts])
        self.assertEqual(parts, [DATA[start : start + 100] for start in starts])
        self.assertTrue(any(range == "bytes=20000-20099" for _, _, range in self.one.requests + self.two.requests))
        self.assertTrue(self.two.requests)
        with tempfile.TemporaryDirectory() as directory:
            local = os.path.join(directory, "f")
            fs.get([path], os.path.join(directory, "new") + "/")
            fs.get(path, local)
            self.assertEqual(pathlib.Path(local).read_bytes(), DATA)
        with self.assertRaises(FileNotFoundError):
            fs.cat_file(path + "x")
        with self.assertRaises(NotImplementedError):
            fs.open(path, "wb")

    @needs("requests")
    def test_requests(self) -> None:
        import requests

        import anabranch.requests

        with requests.Session() as session:
            session.mount(self.one.url("/pub/"), anabranch.requests.Adapter(self.mirrors))
            self.assertEqual(session.get(self.one.url("/pub/f")).content, DATA)
            self.assertTrue(any(path == "/m/f" for _, path, _ in self.two.requests))
            with session.get(self.one.url("/pub/g"), stream=True) as answer:
                self.assertEqual(next(answer.iter_content(10)), DATA[::-1][:10])
            self.assertEqual(session.get(self.one.url("/pub/x")).status_code, 404)
            # What may be secret goes to no other host, and what the caller asks for goes to its server.
            fields = {"Accept": "application/x-own", "Authorization": "Bearer secret"}
            self.one.wanted = fields
            before = len(self.two.requests)
            self.assertEqual(session.get(self.one.url("/pub/f"), headers=fields).content, DATA)
            self.assertEqual(len(self.two.requests), before)
            self.one.wanted = {}
            again = pickle.loads(pickle.dumps(session))
            self.assertEqual(again.get(self.one.url("/pub/f"), timeout=(5, 20), verify=False).content, DATA)
            with self.assertRaises(TypeError):
                anabranch.requests.Adapter(mirears={})
            part = session.get(self.one.url("/pub/f"), headers={"Range": "bytes=5-9"})
            self.assertEqual((part.status_code, part.content), (206, DATA[5:10]))

    @needs("httpx")
    def test_httpx(self) -> None:
        import httpx

        import anabranch.httpx

        with httpx.Client(transport=anabranch.httpx.Transport(self.mirrors)) as client:
            answer = client.get(self.one.url("/pub/f"))
            self.assertEqual((answer.content, answer.headers["content-length"]), (DATA, str(len(DATA))))
            self.assertTrue(any(path == "/m/f" for _, path, _ in self.two.requests))
            self.assertEqual(client.get(self.one.url("/pub/x")).status_code, 404)
            self.assertEqual(client.get(self.one.url("/pub/f"), headers={"Range": "bytes=5-9"}).content, DATA[5:10])

    @needs("pandas")
    def test_a_scenario_and_a_capture(self) -> None:
        from anabranch import lab, trace

        try:
            rows = lab.run("bench-a", cc="reno", seeds="1..2")
        except FileNotFoundError as error:
            self.skipTest(str(error))
        self.assertTrue({"case", "controller", "metric", "value", "unit"} <= set(rows.columns), rows.columns)
        self.assertEqual(set(rows["controller"]), {"reno"})
        with self.assertRaisesRegex(OSError, "no-such-scenario"):
            lab.run("no-such-scenario")
        captures = LAB / "crates/products/trace/tests/captures"
        capture = trace.read(captures / "handover_down_client.pcap")
        self.assertEqual((len(capture.connections), len(capture.subflows), len(capture.handovers)), (1, 2, 1))
        self.assertEqual(len(capture.stalls.sort_values("ms")), 5)
        quiet = trace.read(captures / "checksum_client.pcap")
        self.assertEqual(len(quiet.handovers.sort_values("at_s")), 0)
        runs = lab.sweep("bench-a", cc="reno", seeds="1..2", shards=2)
        self.assertEqual(list(runs[runs["case"] == runs["case"][0]]["seed"]), [1, 2])
        with self.assertRaisesRegex(OSError, "no-such.pcap"):
            trace.read("no-such.pcap")


if __name__ == "__main__":
    unittest.main()
