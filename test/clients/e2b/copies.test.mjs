import { test } from 'node:test'
import assert from 'node:assert/strict'
import { Sandbox, SandboxNotFoundError } from 'e2b'
import { box, until } from './setup.mjs'

test('fork', async () => {
  const sbx = await box({ metadata: { tag: 'parent' } })
  await sbx.files.write('state', 'before')
  const job = await sbx.commands.run('i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.1; done', { background: true, timeoutMs: 0 })
  await until(() => sbx.files.exists('/tmp/count'), 'it counts')
  const before = (await sbx.getInfo()).endAt
  const children = (await sbx.fork({ count: 2, timeoutMs: 120_000 })).map((c) => c.sandbox ?? c)
  try {
    assert.equal(new Set([sbx, ...children].map((s) => s.sandboxId)).size, 3)
    assert.deepEqual((await sbx.getInfo()).endAt, before)
    for (const child of children) {
      assert.equal(await child.files.read('state'), 'before')
      const count = Number(await child.files.read('/tmp/count'))
      await until(async () => Number(await child.files.read('/tmp/count')) > count, 'the job goes on in a child')
      assert.ok((await child.commands.list()).some((p) => p.pid === job.pid))
      await child.files.write('state', child.sandboxId)
    }
    assert.equal(await sbx.files.read('state'), 'before')
    assert.equal(await children[0].files.read('state'), children[0].sandboxId)
  } finally {
    await Promise.all(children.map((c) => c.kill()))
  }
  await assert.rejects(Sandbox.fork('nosuchsandbox'), SandboxNotFoundError)
})

test('snapshots', async () => {
  const sbx = await box()
  await sbx.files.write('note', 'kept')
  const snap = await sbx.createSnapshot()
  await sbx.files.write('note', 'changed')
  const listed = await sbx.listSnapshots().nextItems()
  assert.deepEqual(listed.map((s) => s.snapshotId), [snap.snapshotId])
  const other = await box({}, snap.snapshotId)
  assert.equal(await other.files.read('note'), 'kept')
  assert.equal((await other.getInfo()).templateId, snap.snapshotId)
  const tagged = await sbx.createSnapshot({ name: `snap-${sbx.sandboxId}:v1` })
  assert.deepEqual(tagged.names, [`snap-${sbx.sandboxId}:v1`])
  assert.equal(await (await box({}, tagged.names[0])).files.read('note'), 'changed')
  assert.equal(await Sandbox.deleteSnapshot(tagged.names[0]), true)
  assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
})

test('what it may reach changes while it runs', async () => {
  const sbx = await box({ network: { denyOut: ['0.0.0.0/0'] } })
  assert.deepEqual((await sbx.getInfo()).network?.denyOut, ['0.0.0.0/0'])
  await sbx.updateNetwork({ allowOut: ['example.com'], denyOut: ['0.0.0.0/0'] })
  assert.deepEqual((await sbx.getInfo()).network?.allowOut, ['example.com'])
  await sbx.updateNetwork({})
  assert.equal((await sbx.getInfo()).network?.allowOut, undefined)
  await assert.rejects(sbx.updateNetwork({ allowOut: ['example.com'] }), /0\.0\.0\.0\/0/)
})
