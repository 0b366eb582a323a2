"""What the functions of the module promise, with real transfers."""

import asyncio
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import anabranch
from server import Server, content, sha256

DATA = content(3_000_000)


class Get(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(self.directory, "f")

    def read(self) -> bytes:
        with open(self.path, "rb") as file:
            return file.read()

    def test_two_mirrors_one_of_which_lies(self) -> None:
        wrong = DATA[:1_000_000] + b"x" + DATA[1_000_001:]
        with Server({"/f": DATA}) as one, Server({"/f": DATA}) as two:
            seen: list[anabranch.Progress] = []
            report = anabranch.get([one.url(), two.url()], self.path, sha256=sha256(DATA), progress=seen.append)
            self.assertEqual((report.verdict, report.verified_by, report.target), ("verified", "user", self.path))
            self.assertEqual((self.read(), seen[-1].done_bytes, report.last.done_bytes), (DATA, len(DATA), len(DATA)))
            # At the end a block may be asked of both.
            self.assertGreaterEqual(sum(path.bytes for path in report.last.paths), len(DATA))
        with Server({"/f": wrong}) as liar, self.assertRaises(anabranch.Error) as caught:
            anabranch.get(liar.url(), self.path + "2", sha256=sha256(DATA))
        self.assertEqual(caught.exception.kind, "corrupt")
        self.assertFalse(os.path.exists(self.path + "2"))

    def test_errors_say_what_kind_they_are(self) -> None:
        with Server({"/f": DATA}) as server:
            for kind, call in {
                "not_found": lambda: anabranch.get(server.url("/g"), self.path),
                "usage": lambda: anabranch.get("no-such.meta4", self.path),
                "target": lambda: anabranch.get(server.url(), "/nowhere/f"),
            }.items():
                with self.subTest(kind), self.assertRaises(anabranch.Error) as caught:
                    call()
                self.assertEqual(caught.exception.kind, kind)
                self.assertIsInstance(caught.exception, OSError)
            with self.assertRaisesRegex(TypeError, "no option 'sha1'"):
                anabranch.get(server.url(), self.path, sha1="00")
            with self.assertRaisesRegex(ValueError, "either"):
                anabranch.get(server.url(), self.path, sha256="00", checksum="00")

    def test_wrong_values_are_refused_at_once(self) -> None:
        url = "http://127.0.0.1:9/f"
        for limit in (0, -1, float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "limit="):
                anabranch.get(url, self.path, limit=limit)
        with self.assertRaisesRegex(TypeError, "sha256"):
            anabranch.get_range(url, 0, 1, sha256="0" * 64)
        with self.assertRaises(TypeError):
            anabranch.get(None)

    def test_an_error_can_be_pickled_and_names_keywords(self) -> None:
        with Server({"/f": DATA}) as server, self.assertRaises(anabranch.Error) as caught:
            with open(self.path, "wb") as file:
                file.write(b"another")
            anabranch.get(server.url(), self.path)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((type(again), str(again), again.kind), (anabranch.Error, str(caught.exception), "target"))
        self.assertRegex(str(again), r"path|overwrite")
        self.assertNotIn("`", str(again))

    def test_a_fork_makes_its_own(self) -> None:
        code = """
import anabranch, os, sys
url, = sys.argv[1:]
client, file = anabranch.Client(), anabranch.open(url)
anabranch.get_range(url, 0, 5, client=client)
child = os.fork()
if child == 0:
    said = 0
    for call in (lambda: anabranch.get_range(url, 0, 5, client=client), lambda: file.read()):
        try:
            call()
        except anabranch.Error as error:
            said += "fork" in str(error)
    file.close()
    del client, file
    same = anabranch.get_range(url, 0, 5, client=anabranch.Client())
    os._exit(0 if said == 2 and len(same) == 5 else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(status, len(file.read()))
"""
        with Server({"/f": DATA}) as server:
            done = subprocess.run(
                [sys.executable, "-c", code, server.url()], capture_output=True, text=True, timeout=60, check=False
            )
        self.assertEqual((done.stdout, done.stderr), (f"0 {len(DATA)}\n", ""))

    def test_options_reach_the_server(self) -> None:
        with Server({"/f": DATA}) as server:
            server.wanted = {"X-Token": "secret", "Authorization": "Basic YTpi"}
            with self.assertRaises(anabranch.Error) as caught:
                anabranch.get(server.url(), self.path)
            self.assertEqual(caught.exception.kind, "refused")
            options = {"headers": {"X-Token": "secret"}, "auth": ("a", "b"), "via": "lo", "limit": 1e9, "timeout": 9.5}
            anabranch.get(server.url(), self.path, background=True, **options)
        self.assertEqual(self.read(), DATA)

    def test_an_exception_of_the_listener_stops_and_a_second_call_resumes(self) -> None:
        class Enough(Exception):
            pass

        def listen(progress: anabranch.Progress) -> None:
            if progress.done_bytes > 500_000:
                raise Enough

        with Server({"/f": DATA}, pause_s=0.02) as server:
            with self.assertRaises(Enough):
                anabranch.get(server.url(), self.path, progress=listen, progress_every=0.01)
            self.assertFalse(os.path.exists(self.path))
            server.pause_s = 0
            report = anabranch.get(server.url(), self.path, sha256=sha256(DATA))
        self.assertGreater(report.last.resumed_bytes, 400_000)
        self.assertEqual(self.read(), DATA)

    def test_a_stop_of_another_thread(self) -> None:
        stop = anabranch.Stop()
        with Server({"/f": DATA}, pause_s=0.1) as server:
            threading.Timer(0.2, stop.stop).start()
            with self.assertRaises(anabranch.Error) as caught:
                anabranch.get(server.url(), self.path, stop=stop)
        self.assertEqual((caught.exception.kind, stop.is_stopped), ("interrupted", True))

    def test_ctrl_c_ends_each_wait(self) -> None:
        calls = {
            "get": "anabranch.get(url, path)",
            "read": "anabranch.open(url).read()",
            "ranges": "anabranch.get_ranges(url, [(0, 2_900_000)])",
        }
        with Server({"/f": DATA}, pause_s=0.5) as server:
            for name, call in calls.items():
                code = (
                    "import anabranch, sys\nurl, path = sys.argv[1:]\nprint('begins', flush=True)\n"
                    f"try:\n    {call}\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
                )
                before = len(server.requests)
                child = subprocess.Popen(
                    [sys.executable, "-c", code, server.url(), self.path + name], stdout=subprocess.PIPE, text=True
                )
                assert child.stdout is not None
                child.stdout.readline()
                while len(server.requests) == before:
                    self.assertIsNone(child.poll())
                child.send_signal(signal.SIGINT)
                self.assertEqual((child.communicate(timeout=20)[0], child.returncode), ("interrupted\n", 0), name)

    def test_asyncio_and_its_cancellation(self) -> None:
        async def fetch() -> tuple[anabranch.Report, bool]:
            loop_thread, right = threading.get_ident(), []
            with Server({"/f": DATA}) as server:

                def listen(_: anabranch.Progress) -> None:
                    right.append(threading.get_ident() == loop_thread)

                report = await anabranch.get_async(server.url(), self.path, progress=listen)
                await asyncio.sleep(0)
            return report, bool(right) and all(right)

        report, was_in_loop = asyncio.run(fetch())
        self.assertTrue(report.complete and was_in_loop)

        async def cancelled() -> None:
            with Server({"/f": DATA}, pause_s=0.1) as server:
                task = asyncio.create_task(anabranch.get_async(server.url(), self.path + "2"))
                while not server.requests:
                    await asyncio.sleep(0.01)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        asyncio.run(cancelled())

    def test_asyncio_has_its_executor_and_hears_exceptions(self) -> None:
        def fail(_: anabranch.Progress) -> None:
            raise ZeroDivisionError

        async def many() -> None:
            with Server({"/f": DATA}, pause_s=0.5) as server:
                urls = [server.url() + f"?{number}" for number in range(40)]
                server.files.update({url.removeprefix(server.url("")): DATA for url in urls})
                tasks = [asyncio.create_task(anabranch.get_async(url, f"{self.path}{at}")) for at, url in enumerate(urls)]
                self.assertEqual(await asyncio.wait_for(asyncio.to_thread(lambda: 1), 20), 1)
                for task in tasks:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                self.assertTrue(all(isinstance(end, asyncio.CancelledError) for end in ends), ends)
            with Server({"/f": DATA}, pause_s=0.05) as server:
                with self.assertRaises(ZeroDivisionError):
                    await anabranch.get_async(server.url(), self.path, progress=fail)
                self.assertFalse(os.path.exists(self.path))

        asyncio.run(many())

    def test_a_file_is_read_while_it_arrives(self) -> None:
        with Server({"/f": DATA}) as one, Server({"/f": DATA}) as two:
            with anabranch.open([one.url(), two.url()], sha256=sha256(DATA)) as file:
                self.assertIsNone(file.report)
                self.assertEqual(hashlib.file_digest(file, "sha256").hexdigest(), sha256(DATA))
                assert file.report is not None
                self.assertEqual(file.report.verdict, "verified")
            with anabranch.open(one.url(), sha256="00" * 32) as file, self.assertRaises(anabranch.Error):
                file.read()
            with self.assertRaises(ValueError):
                file.read()

    def test_a_file_is_closed_while_another_thread_reads(self) -> None:
        with Server({"/f": DATA}, pause_s=60) as server:
            file, ended = anabranch.open(server.url()), []

            def read() -> None:
                with self.assertRaises((anabranch.Error, ValueError)):
                    file.read()
                ended.append(True)

            thread = threading.Thread(target=read)
            thread.start()
            while not server.requests:
                time.sleep(0.01)
            file.close()
            thread.join(20)
        self.assertEqual(ended, [True])

    def test_ranges(self) -> None:
        with Server({"/f": DATA}) as server:
            self.assertEqual(anabranch.get_ranges(server.url(), zip([0, 5], [3, 9])), [DATA[:3], DATA[5:9]])
            ranges = [(2_000_000, 2_000_100), (0, 5), (7, 7), (2_999_999, 9_999_999)]
            self.assertEqual(anabranch.get_ranges(server.url(), ranges), [DATA[start:end] for start, end in ranges])
            self.assertEqual(anabranch.get_range(server.url(), 10, 20), DATA[10:20])
            with self.assertRaises(ValueError):
                anabranch.get_ranges(server.url(), [(5, 1)])


if __name__ == "__main__":
    unittest.main()
