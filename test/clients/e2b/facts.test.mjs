import { test } from 'node:test'
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'
import { box } from './setup.mjs'

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
