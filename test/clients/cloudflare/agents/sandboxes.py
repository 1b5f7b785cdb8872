"""The sandbox client of the OpenAI Agents SDK, as published, against the bridge."""

import io
import os
import tarfile
import tempfile
import unittest
from pathlib import Path

from agents.extensions.sandbox.cloudflare import CloudflareSandboxClient, CloudflareSandboxClientOptions
from agents.sandbox import (
    ExecTransportError,
    ExposedPortUnavailableError,
    LocalSnapshotSpec,
    Manifest,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.entries import Dir, File
from agents.sandbox.errors import ConfigurationError
from agents.sandbox.manifest import Environment

URL, KEY = os.environ["BRIDGE_URL"], os.environ["BERTH_API_KEY"]


class Sandboxes(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = CloudflareSandboxClient()

    async def box(self, **more):
        session = await self.client.create(
            options=CloudflareSandboxClientOptions(worker_url=URL, api_key=KEY), **more
        )
        self.addAsyncCleanup(self.client.delete, session)
        await session.start()
        return session

    async def test_commands(self):
        box = await self.box(manifest=Manifest(environment=Environment(value={"GREETING": "hi there"})))
        self.assertTrue(await box.running())
        done = await box.exec("echo out; echo err >&2; exit 3")
        self.assertEqual((done.stdout, done.stderr, done.exit_code), (b"out\n", b"err\n", 3))
        done = await box.exec("printf", "%s|", "a b", "$HOME", "'", "x\ny", shell=False)
        self.assertEqual(done.stdout, b"a b|$HOME|'|x\ny|")
        done = await box.exec("echo $GREETING; pwd; id -un")
        self.assertEqual(done.stdout, b"hi there\n/workspace\nroot\n")
        done = await box.exec("head -c 3000000 /dev/urandom | tee all | sha256sum; sha256sum < all")
        one, two = done.stdout.split(b"\n")[:2]
        self.assertEqual(one, two)
        done = await box.exec("head -c 3000000 /dev/zero")
        self.assertEqual(done.stdout, bytes(3_000_000))
        done = await box.exec("sleep 60", timeout=0.5)
        self.assertEqual(done.exit_code, 124)
        done = await box.exec("sleep 1000 > /dev/null 2>&1 & echo started")
        self.assertEqual(done.stdout, b"started\n")
        done = await box.exec("no-such-program")
        self.assertEqual(done.exit_code, 127)

    async def test_files(self):
        box = await self.box(
            manifest=Manifest(entries={"docs": Dir(children={"a.txt": File(content=b"of the manifest")})})
        )
        self.assertEqual((await box.read(Path("docs/a.txt"))).read(), b"of the manifest")
        every = bytes(range(256)) * 5000
        await box.write(Path("/workspace/deep/all.bin"), io.BytesIO(every))
        self.assertEqual((await box.read(Path("deep/all.bin"))).read(), every)
        self.assertEqual(await box.read_bounded(Path("deep/all.bin"), max_bytes=300), every[:300])
        names = {Path(e.path).name for e in await box.ls("deep")}
        self.assertEqual(names, {"all.bin"})
        await box.mkdir("made/below", parents=True)
        await box.mv("deep/all.bin", "made/moved.bin")
        await box.rm("deep", recursive=True)
        self.assertEqual((await box.read(Path("made/moved.bin"))).read(), every)
        with self.assertRaises(WorkspaceReadNotFoundError):
            await box.read(Path("deep/all.bin"))
        with self.assertRaises(Exception):
            await box.read(Path("/etc/passwd"))
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            info = tarfile.TarInfo("in/tar.txt")
            info.size = 4
            tar.addfile(info, io.BytesIO(b"text"))
        packed.seek(0)
        await box.extract("unpacked.tar", packed, compression_scheme="tar")
        done = await box.exec("find . -name tar.txt -exec cat {} +")
        self.assertEqual(done.stdout, b"text")

    async def test_workspaces(self):
        one, two = await self.box(), await self.box()
        await one.exec("mkdir -p a/b && echo x > a/b/c && ln -s b a/link && chmod 750 a/b && echo skip > skipped")
        one.register_persist_workspace_skip_path(Path("skipped"))
        packed = await one.persist_workspace()
        await two.hydrate_workspace(packed)
        done = await two.exec("cat a/link/c; stat -c %a a/b; ls skipped 2>/dev/null")
        self.assertEqual(done.stdout, b"x\n750\n")

    async def test_snapshots(self):
        with tempfile.TemporaryDirectory() as kept:
            session = await self.client.create(
                options=CloudflareSandboxClientOptions(worker_url=URL, api_key=KEY),
                snapshot=LocalSnapshotSpec(base_path=Path(kept)),
            )
            await session.start()
            await session.exec("echo kept > note")
            await session.stop()
            state = self.client.deserialize_session_state(self.client.serialize_session_state(session.state))
            await self.client.delete(session)
            os.environ["CLOUDFLARE_SANDBOX_API_KEY"] = KEY
            again = await self.client.resume(state)
            self.addAsyncCleanup(self.client.delete, again)
            await again.start()
            self.assertEqual((await again.read(Path("note"))).read(), b"kept\n")

    async def test_terminal(self):
        box = await self.box()
        self.assertTrue(box.supports_pty())
        at = await box.pty_exec_start("cat", tty=True, yield_time_s=2)
        self.assertIsNotNone(at.process_id)
        seen = at.output
        at = await box.pty_write_stdin(session_id=at.process_id, chars="typed here\n", yield_time_s=2)
        for _ in range(60):
            seen += at.output
            if seen.count(b"typed here") >= 2:  # the echo, and what cat says
                break
            at = await box.pty_write_stdin(session_id=at.process_id, chars="", yield_time_s=1)
        self.assertGreaterEqual(seen.count(b"typed here"), 2, seen)
        await box.pty_terminate_all()

    async def test_refusals(self):
        with self.assertRaisesRegex(ConfigurationError, "401"):
            await self.client.create(
                options=CloudflareSandboxClientOptions(worker_url=URL, api_key="berth_" + "0" * 40)
            )
        box = await self.box()
        with self.assertRaises(ExposedPortUnavailableError):
            await box.resolve_exposed_port(8080)
        self.assertEqual((await box.exec("true")).exit_code, 0)
        await self.client.delete(box)
        inner = box._inner
        inner.state.sandbox_id = "NOT-AN-ID"
        with self.assertRaisesRegex(ExecTransportError, "400"):
            await box.exec("true")


if __name__ == "__main__":
    unittest.main()
