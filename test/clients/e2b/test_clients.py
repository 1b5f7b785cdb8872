"""E2B's own Python packages, as they are published, against a real server."""

import asyncio
import os
import time
import unittest
import urllib.request

from e2b import AsyncSandbox, AsyncVolume, CommandExitException, NotFoundException, PtySize, Sandbox, Secret, Template, TimeoutException, Volume
from e2b_code_interpreter import AsyncSandbox as AsyncInterpreter
from e2b_code_interpreter import Sandbox as Interpreter

BASE = "base"


class Sync(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sbx = Sandbox.create(BASE, timeout=300, metadata={"of": "python"}, envs={"GIVEN": "yes"})

    @classmethod
    def tearDownClass(cls):
        cls.sbx.kill()

    def test_sandbox(self):
        sbx = self.sbx
        self.assertTrue(sbx.is_running())
        info = sbx.get_info()
        self.assertEqual((info.sandbox_id, info.metadata), (sbx.sandbox_id, {"of": "python"}))
        self.assertIn(sbx.sandbox_id, [s.sandbox_id for s in Sandbox.list().next_items()])
        sbx.set_timeout(400)
        self.assertGreater(sbx.get_info().end_at, info.end_at)
        self.assertGreater(sbx.get_metrics()[0].mem_total, 0)
        sbx.update_network({"deny_out": ["0.0.0.0/0"]})
        sbx.update_network({})

    def test_commands(self):
        run = self.sbx.commands.run("echo $GIVEN; echo err >&2; pwd")
        self.assertEqual((run.exit_code, run.stdout, run.stderr), (0, "yes\n/home/user\n", "err\n"))
        with self.assertRaises(CommandExitException) as e:
            self.sbx.commands.run("exit 7")
        self.assertEqual(e.exception.exit_code, 7)
        job = self.sbx.commands.run("cat", background=True, stdin=True)
        self.assertIn(job.pid, [p.pid for p in self.sbx.commands.list()])
        self.sbx.commands.send_stdin(job.pid, "typed\n")
        self.sbx.commands.close_stdin(job.pid)
        self.assertEqual(job.wait().stdout, "typed\n")
        job = self.sbx.commands.run("sleep 100", background=True)
        self.assertTrue(self.sbx.commands.kill(job.pid))
        with self.assertRaises(TimeoutException):
            self.sbx.commands.run("sleep 100", timeout=1)

    def test_files(self):
        files = self.sbx.files
        self.assertEqual(files.write("dir/a.txt", "text").path, "/home/user/dir/a.txt")
        self.assertEqual(files.read("dir/a.txt"), "text")
        self.assertEqual(bytes(files.read("dir/a.txt", format="bytes")), b"text")
        self.assertEqual([e.name for e in files.list("dir")], ["a.txt"])
        self.assertTrue(files.exists("dir/a.txt"))
        self.assertEqual(files.get_info("dir/a.txt").size, 4)
        watch = files.watch_dir("dir")
        files.write("dir/b.txt", "new")
        seen, end = [], time.time() + 60
        while "b.txt" not in seen and time.time() < end:
            seen += [e.name for e in watch.get_new_events()]
            time.sleep(0.1)
        self.assertIn("b.txt", seen)
        watch.stop()
        self.assertEqual(files.rename("dir/b.txt", "dir/c.txt").name, "c.txt")
        files.make_dir("dir/sub")
        files.remove("dir")
        with self.assertRaises(NotFoundException):
            files.read("dir/a.txt")
        files.write("signed", "for you")
        with urllib.request.urlopen(self.sbx.download_url("signed", use_signature_expiration=60)) as answer:
            self.assertEqual(answer.read(), b"for you")

    def test_terminal(self):
        out = []
        term = self.sbx.pty.create(size=PtySize(rows=20, cols=70))
        self.sbx.pty.send_stdin(term.pid, b"stty size; exit\n")
        term.wait(on_pty=lambda data: out.append(bytes(data)))
        self.assertIn(b"20 70", b"".join(out))

    def test_git(self):
        self.sbx.git.init("/home/user/repo", initial_branch="main")
        self.assertEqual(self.sbx.git.status("/home/user/repo").current_branch, "main")

    def test_copies(self):
        self.sbx.files.write("kept", "before")
        snap = self.sbx.create_snapshot()
        other = Sandbox.create(snap.snapshot_id, timeout=120)
        self.assertEqual(other.files.read("kept"), "before")
        other.pause()
        self.assertEqual(other.connect(timeout=120).files.read("kept"), "before")
        self.assertTrue(other.kill())
        self.assertTrue(Sandbox.delete_snapshot(snap.snapshot_id))

    def test_templates_and_secrets(self):
        self.assertTrue(Template.exists(BASE))
        self.assertFalse(Template.exists("no-such-template"))
        self.assertEqual([t.tag for t in Template.get_tags(BASE)], ["default"])
        name = f"python-{time.time_ns()}"
        self.assertEqual(Secret.create(name, "value").name, name)
        self.assertTrue(Secret.destroy(name))

    def test_volumes(self):
        volume = Volume.create(f"python-{time.time_ns()}")
        volume.write_file("/a", "one")
        self.assertEqual(volume.read_file("/a"), "one")
        self.assertEqual([e.path for e in volume.list("/")], ["/a"])
        self.assertTrue(Volume.destroy(volume.volume_id))

    def test_code(self):
        sbx = Interpreter.create(timeout=120)
        try:
            sbx.run_code("x = 20")
            run = sbx.run_code("print('out'); x + 1")
            self.assertEqual((run.text, run.logs.stdout), ("21", ["out\n"]))
            self.assertEqual(sbx.run_code("1/0").error.name, "ZeroDivisionError")
            chart = sbx.run_code("import matplotlib.pyplot as plt; plt.plot([1, 2], [3, 4], label='l'); plt.title('T'); plt.show()").results[0].chart
            self.assertEqual((chart.type.value, chart.title, chart.elements[0].points), ("line", "T", [(1, 3), (2, 4)]))
            context = sbx.create_code_context(cwd="/tmp")
            self.assertEqual(sbx.run_code("import os; os.getcwd()", context=context).text, "/tmp")
            self.assertIn(context.id, [c.id for c in sbx.list_code_contexts()])
            sbx.restart_code_context(context)
            sbx.remove_code_context(context)
        finally:
            sbx.kill()


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_all(self):
        sbx = await AsyncSandbox.create(BASE, timeout=120)
        try:
            self.assertEqual((await sbx.commands.run("echo hello")).stdout, "hello\n")
            out = []
            job = await sbx.commands.run("for i in 1 2; do echo $i; done", background=True, on_stdout=out.append)
            await job.wait()
            self.assertEqual("".join(out), "1\n2\n")
            await sbx.files.write("a", "x")
            self.assertEqual(await sbx.files.read("a"), "x")
            events = []
            watch = await sbx.files.watch_dir("/home/user", on_event=lambda e: events.append(e.name))
            await sbx.files.write("b", "y")
            for _ in range(600):
                if "b" in events:
                    break
                await asyncio.sleep(0.1)
            self.assertIn("b", events)
            await watch.stop()
            self.assertTrue(await sbx.is_running())
            volume = await AsyncVolume.create(f"async-{time.time_ns()}")
            await volume.write_file("/a", "one")
            self.assertTrue(await volume.exists("/a"))
            self.assertTrue(await AsyncVolume.destroy(volume.volume_id))
        finally:
            self.assertTrue(await sbx.kill())

    async def test_code(self):
        sbx = await AsyncInterpreter.create(timeout=120)
        try:
            out = []
            run = await sbx.run_code("print('ä€😀'); 6 * 7", on_stdout=lambda m: out.append(m.line))
            self.assertEqual((run.text, out), ("42", ["ä€😀\n"]))
        finally:
            await sbx.kill()


if __name__ == "__main__":
    unittest.main()
