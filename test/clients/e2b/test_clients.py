"""E2B's own Python packages, as they are published, against a real server."""

import asyncio
import json
import os
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from e2b import (
    AsyncSandbox,
    AsyncSecret,
    AsyncTemplate,
    AsyncVolume,
    AuthenticationException,
    BuildException,
    CommandExitException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    Secret,
    Template,
    TimeoutException,
    Volume,
)
from e2b.exceptions import SecretNotFoundException, TemplateException
from e2b_code_interpreter import AsyncSandbox as AsyncInterpreter
from e2b_code_interpreter import Sandbox as Interpreter

BASE = "base"


def begin_build(name):
    """Begins a build of many kinds of step, each of which fails if the one before was not done."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/src")
        with open(f"{folder}/src/file", "w") as f:
            f.write("copied")
        os.symlink("file", f"{folder}/src/link")
        os.symlink("nosuch", f"{folder}/src/broken")
        steps = Template(file_context_path=folder).from_base_image().skip_cache().copy("src/*", "src", force_upload=True)
        steps = steps.run_cmd("grep copied src/link").run_cmd('test "$(whoami)" = root', user="root").make_symlink(".bashrc", "twice").make_symlink(".profile", "twice", force=True)
        steps = steps.run_cmd('test "$(readlink twice)" = .profile').set_workdir("/app")
        build = Template.build_in_background(steps, f"{name}:v1", cpu_count=1, memory_mb=1024)
    status = Template.get_build_status(build).status.value
    assert status == "building", status
    return build


class Sync(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.name = f"python-{time.time_ns()}"
        cls.build = begin_build(cls.name)  # test_z_build waits for it
        cls.sbx = Sandbox.create(BASE, timeout=600, metadata={"of": "python"}, envs={"GIVEN": "yes"})

    @classmethod
    def tearDownClass(cls):
        cls.sbx.kill()

    def test_sandbox(self):
        sbx = self.sbx
        self.assertTrue(sbx.is_running())
        info = sbx.get_info()
        self.assertEqual((info.sandbox_id, info.metadata), (sbx.sandbox_id, {"of": "python"}))
        self.assertIn(sbx.sandbox_id, [s.sandbox_id for s in Sandbox.list().next_items()])
        sbx.set_timeout(900)
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
        self.assertEqual(len(files.read("/proc/sys/kernel/random/boot_id").strip()), 36)  # it says that it is empty
        files.write("signed", "for you")
        with urllib.request.urlopen(self.sbx.download_url("signed", use_signature_expiration=60)) as answer:
            self.assertEqual(answer.read(), b"for you")

    def test_watch(self):
        files = self.sbx.files
        files.make_dir("seen/below")
        watch = files.watch_dir("seen", recursive=True)
        written = ("write", "below/a")

        def told(n, but=None):
            all, end = [], time.time() + 60
            while len(all) < n and time.time() < end:
                all += [e for e in ((e.type.value, e.name) for e in watch.get_new_events()) if e != but]
            return all

        files.write("seen/below/a", "text")
        self.assertEqual(told(3), [("create", "below/a"), ("chmod", "below/a"), written])
        files.write("seen/below/a", "other")  # is emptied first, which may be told too
        self.assertEqual(set(told(1)), {written})
        files.rename("seen/below/a", "seen/b")
        self.assertEqual(told(2, but=written), [("rename", "below/a"), ("create", "b")])
        files.make_dir("seen/new")
        files.write("seen/new/c", "text")
        self.assertEqual(told(4), [("create", "new"), ("create", "new/c"), ("chmod", "new/c"), ("write", "new/c")])
        watch.stop()
        files.remove("seen")

    def test_links_and_users(self):
        self.sbx.commands.run("mkdir -p at/deep; echo x >at/deep/file; ln -s at/deep via; ln -s via/file one; ln -s one two; ln -s nosuch broken")
        ends = {n: (i.type.value, i.symlink_target) for n in ("via", "one", "two") for i in [self.sbx.files.get_info(n)]}
        file = ("file", "/home/user/at/deep/file")
        self.assertEqual(ends, {"via": ("dir", "/home/user/at/deep"), "one": file, "two": file})
        self.sbx.commands.run("useradd --create-home --home-dir /srv/odd odd", user="root")
        self.assertEqual(self.sbx.files.write("mine", "x", user="odd").path, "/srv/odd/mine")
        self.assertEqual(self.sbx.commands.run("id -un; pwd", user="odd", cwd="~").stdout, "odd\n/srv/odd\n")
        for refused in (lambda: self.sbx.files.read("x", user="nosuch"), lambda: self.sbx.files.list("/", user="nosuch"), lambda: self.sbx.commands.run("true", user="nosuch")):
            with self.assertRaises(AuthenticationException):
                refused()

    def test_terminal(self):
        out = []
        term = self.sbx.pty.create(size=PtySize(rows=20, cols=70))
        self.sbx.pty.send_stdin(term.pid, b"stty size; exit\n")
        term.wait(on_pty=lambda data: out.append(bytes(data)))
        self.assertIn(b"20 70", b"".join(out))
        first, second = b"", []
        term = self.sbx.pty.create(size=PtySize(rows=20, cols=70), envs={"MARK": "seen"}, cwd="/")
        self.sbx.pty.send_stdin(term.pid, b"echo $MARK-$((0+1))\n")
        for _, _, data in term:
            first += data or b""
            if b"seen-1" in first:
                break
        term.disconnect()
        again = self.sbx.pty.connect(term.pid)
        self.sbx.pty.send_stdin(term.pid, b"echo $MARK-$((1+1)); exit 3\n")
        with self.assertRaises(CommandExitException) as e:
            again.wait(on_pty=lambda data: second.append(bytes(data)))
        self.assertEqual((again.pid, e.exception.exit_code), (term.pid, 3))
        self.assertIn(b"seen-2", b"".join(second))
        self.assertTrue(self.sbx.pty.kill(self.sbx.pty.create(PtySize(rows=20, cols=70)).pid))
        self.assertFalse(self.sbx.pty.kill(999999))

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
        secret = Secret.create(name, "value")
        self.assertEqual((secret.name, secret.version), (name, 1))
        self.assertEqual(Secret.update(secret.secret_id, "other").version, 2)
        self.assertEqual(Secret.get_info(name).secret_id, secret.secret_id)
        self.assertTrue(Secret.exists(name))
        for missing in (lambda: Secret.update("no-such", "value"), lambda: Secret.get_info("no-such")):
            with self.assertRaises(SecretNotFoundException):
                missing()
        Secret.create(name + "b", "value")
        pages, all = Secret.list(limit=1), []
        while pages.has_next:
            all += [s.name for s in pages.next_items()]
        self.assertLessEqual({name, name + "b"}, set(all))
        self.assertEqual([Secret.destroy(n) for n in (name, name + "b", name)], [True, True, False])

    def test_z_build(self):
        name, build = self.name, self.build
        end = time.time() + 300
        while Template.get_build_status(build).status.value == "building" and time.time() < end:
            time.sleep(0.1)
        status = Template.get_build_status(build)
        self.assertEqual(status.status.value, "ready", status)
        tagged = Template.assign_tags(f"{name}:v1", ["production", "latest"])
        self.assertEqual((tagged.build_id, tagged.tags), (build.build_id, ["production", "latest"]))
        Template.remove_tags(name, "production")
        self.assertEqual(sorted(t.tag for t in Template.get_tags(name)), ["latest", "v1"])
        with self.assertRaisesRegex(TemplateException, "404"):
            Template.remove_tags(name, "production")
        self.assertTrue(Sandbox.delete_snapshot(build.template_id))
        self.assertFalse(Template.exists(name))

    def test_build_that_fails(self):
        with self.assertRaises(BuildException) as e:
            Template.build(Template().from_base_image().skip_cache().run_cmd("whoami", user="root123"), f"fails-{time.time_ns()}")
        self.assertIn("failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'", str(e.exception))

    def test_asked_again(self):
        key = f"python-{time.time_ns()}"
        with ThreadPoolExecutor(4) as many:
            made = list(many.map(lambda _: Sandbox.create(BASE, timeout=300, idempotency_key=key), range(4)))
        self.assertEqual(len({s.sandbox_id for s in made}), 1)
        with self.assertRaisesRegex(SandboxException, "422"):
            Sandbox.create(BASE, timeout=301, idempotency_key=key)
        self.assertTrue(made[0].kill())
        other = Sandbox.create(BASE, timeout=300, idempotency_key=key)
        self.assertNotEqual(other.sandbox_id, made[0].sandbox_id)
        self.assertTrue(other.kill())

    def test_gateway(self):
        sbx = Sandbox.create(timeout=300, mcp={"time": {}})
        try:
            self.assertTrue(sbx.get_mcp_url().startswith(f"https://50005-{sbx.sandbox_id}."), sbx.get_mcp_url())
            token = sbx.get_mcp_token()
            self.assertEqual(Sandbox.connect(sbx.sandbox_id).get_mcp_token(), token)
            headers = {"E2b-Sandbox-Id": sbx.sandbox_id, "E2b-Sandbox-Port": "50005", "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

            def ask(method, params, **more):
                body = {"jsonrpc": "2.0", "method": method, "params": params}
                if not method.startswith("notifications/"):
                    body["id"] = 1
                request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + "/mcp", json.dumps(body).encode(), headers | more)
                with urllib.request.urlopen(request) as answer:
                    return answer.headers, answer.read().decode()

            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
            with self.assertRaises(urllib.error.HTTPError) as e:
                ask("initialize", hello)
            self.assertEqual(e.exception.code, 401)
            opened = {"Authorization": f"Bearer {token}"}
            opened["Mcp-Session-Id"] = ask("initialize", hello, **opened)[0]["Mcp-Session-Id"]
            ask("notifications/initialized", {}, **opened)
            self.assertIn("get_current_time", ask("tools/list", {}, **opened)[1])
            self.assertIn("UTC", ask("tools/call", {"name": "get_current_time", "arguments": {"timezone": "UTC"}}, **opened)[1])
        finally:
            sbx.kill()
        metadata = {"gateway": str(time.time_ns())}
        with self.assertRaisesRegex(SandboxException, '(?s)Failed to start MCP gateway.*"teapot"'):
            Sandbox.create(timeout=300, metadata=metadata, mcp={"teapot": {}})
        self.assertEqual(Sandbox.list(query=SandboxQuery(metadata=metadata)).next_items(), [])

    def test_volumes(self):
        volume = Volume.create(f"python-{time.time_ns()}")
        volume.write_file("/a", "one")
        self.assertEqual(volume.read_file("/a"), "one")
        self.assertEqual([e.path for e in volume.list("/")], ["/a"])
        volume.write_file("/a", b"two", force=True, uid=1001, gid=1001, mode=0o640)
        info = volume.get_info("/a")
        self.assertEqual((info.name, info.type.value, info.size, info.uid, info.mode), ("a", "file", 3, 1001, 0o640))
        self.assertEqual(volume.update_metadata("/a", mode=0o644, uid=1000, gid=1000).mode, 0o644)
        volume.make_dir("/deep/er", force=True)
        self.assertEqual(b"".join(volume.read_file("/a", format="stream")), b"two")
        sbx = Sandbox.create(BASE, timeout=300, volume_mounts={"/mnt/data": volume})
        try:
            self.assertEqual(sbx.commands.run("cat a; rmdir deep/er; echo >>a three", cwd="/mnt/data").stdout, "two")
        finally:
            sbx.kill()
        self.assertEqual(volume.read_file("/a"), "twothree\n")
        self.assertFalse(volume.exists("/deep/er"))
        volume.remove("/deep")
        for missing in (lambda: volume.list("/deep"), lambda: volume.remove("/deep"), lambda: volume.read_file("/deep"), lambda: volume.update_metadata("/deep", mode=0o700)):
            with self.assertRaises(NotFoundException):
                missing()
        self.assertTrue(Volume.destroy(volume.volume_id))
        self.assertFalse(Volume.destroy(volume.volume_id))

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
            out = []
            term = await sbx.pty.create(PtySize(rows=20, cols=70), on_data=out.append)
            await sbx.pty.resize(term.pid, PtySize(rows=20, cols=90))
            await sbx.pty.send_stdin(term.pid, b"stty size; exit\n")
            await term.wait()
            self.assertIn(b"20 90", b"".join(out))
            name = f"async-{time.time_ns()}"
            self.assertEqual((await AsyncSecret.create(name, "value")).name, name)
            self.assertTrue(await AsyncSecret.destroy(name))
            self.assertTrue(await AsyncTemplate.exists(BASE))
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
