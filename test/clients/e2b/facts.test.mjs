import { test } from 'node:test'
import assert from 'node:assert/strict'
import { AuthenticationError, E2B, Sandbox, waitForFile, waitForPort, waitForProcess, waitForURL } from 'e2b'
import { box, until } from './setup.mjs'

const ask = 'cd /run/e2b && cat .E2B_SANDBOX && echo && cat .E2B_SANDBOX_ID && echo && cat .E2B_TEMPLATE_ID && echo && echo $E2B_SANDBOX && echo $E2B_SANDBOX_ID && echo $E2B_TEMPLATE_ID'

const facts = async (sandbox) => (await sandbox.commands.run(ask)).stdout.trim().split('\n')

test('what a sandbox is lies in it, and in its copies what they are', async () => {
  const sbx = await box()
  assert.deepEqual(await facts(sbx), ['true', sbx.sandboxId, 'base', 'true', sbx.sandboxId, 'base'])
  const [child] = (await sbx.fork({ count: 1 })).map((c) => c.sandbox ?? c)
  const { snapshotId } = await sbx.createSnapshot()
  const copy = await Sandbox.create(snapshotId)
  try {
    for (const one of [child, copy]) {
      assert.notEqual(one.sandboxId, sbx.sandboxId)
      const [, id, , , variable] = await facts(one)
      assert.deepEqual([id, variable], [one.sandboxId, one.sandboxId])
    }
  } finally {
    await Promise.all([child.kill(), copy.kill()])
    await Sandbox.deleteSnapshot(snapshotId)
  }
})

test('what says that a template is ready says so in a sandbox', async () => {
  const sbx = await box()
  const says = (ready) => sbx.commands.run(ready.getCmd()).then((r) => r.exitCode, (e) => e.exitCode)
  const url = 'http://localhost:8123/'
  for (const ready of [waitForPort(8123), waitForURL(url), waitForProcess('none-such'), waitForFile('/none')]) assert.notEqual(await says(ready), 0, ready.getCmd())
  await sbx.commands.run('exec python3 -m http.server 8123', { background: true })
  for (const ready of [waitForPort(8123), waitForURL(url), waitForURL(url + 'none', 404), waitForProcess('python3'), waitForFile('/etc/passwd')])
    await until(async () => (await says(ready)) === 0, ready.getCmd())
})

test('a client has settings of its own', async () => {
  const { E2B_API_KEY: apiKey, E2B_API_URL: apiUrl, E2B_SANDBOX_URL: sandboxUrl } = process.env
  const stranger = new E2B({ apiKey: 'e2b_' + '0'.repeat(40), apiUrl, sandboxUrl })
  for (const refused of [() => stranger.Sandbox.create('base'), () => stranger.Template.exists('base'), () => stranger.Secret.exists('none'), () => stranger.Sandbox.list().nextItems()])
    await assert.rejects(refused, AuthenticationError)
  await assert.rejects(stranger.Volume.list(), /key/i)
  const own = new E2B({ apiKey, apiUrl, sandboxUrl })
  const sbx = await own.Sandbox.create('base')
  assert.equal((await sbx.commands.run('echo $E2B_SANDBOX_ID')).stdout, sbx.sandboxId + '\n')
  assert.equal(await own.Template.exists('base'), true)
  assert.equal(await own.Secret.exists('none'), false)
  assert.ok(Array.isArray(await own.Volume.list()))
  assert.equal(await own.Sandbox.kill(sbx.sandboxId), true)
})
