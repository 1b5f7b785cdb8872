import { test } from 'node:test'
import assert from 'node:assert/strict'
import { Secret, SecretNotFoundError } from 'e2b'
import { box } from './setup.mjs'

test('secrets, and rules that name them', async () => {
  const name = 'key-' + Date.now()
  const made = await Secret.create(name, 'value-one')
  assert.deepEqual([made.name, made.version], [name, 1])
  await assert.rejects(Secret.create(name, 'again'))
  assert.equal((await Secret.update(name, 'value-two')).version, 2)
  assert.equal((await Secret.getInfo(name)).version, 2)
  assert.ok((await Secret.list().nextItems()).some((s) => s.name === name))
  assert.equal(await Secret.exists(name), true)
  const headers = { Authorization: `Bearer ${Secret.fill(name)}` }
  const sbx = await box({ network: { rules: { 'api.example.com': [{ transform: { headers } }] } } })
  assert.equal((await sbx.commands.run('env; cat /proc/self/environ')).stdout.includes('value-two'), false)
  await sbx.kill()
  await assert.rejects(box({ network: { rules: { 'api.example.com': [{ transform: { headers: { A: 'plain' } } }] } } }), /name one secret/)
  assert.equal(await Secret.destroy(name), true)
  assert.equal(await Secret.destroy(name), false)
  await assert.rejects(Secret.getInfo(name), SecretNotFoundError)
})
