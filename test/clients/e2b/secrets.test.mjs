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
  await assert.rejects(box({ network: { rules: { 'api.example.com': [{ transform: { headers: { A: Secret.fill('none-' + name) } } }] } } }), /not found/)
  assert.equal(await Secret.destroy(name), true)
  assert.equal(await Secret.destroy(name), false)
  await assert.rejects(Secret.getInfo(name), SecretNotFoundError)
})

test('rules whose values stand in them, hidden and changed while it runs', async () => {
  const rules = (headers) => ({ 'api.example.com': [{ transform: { headers } }] })
  const shown = async () => (await sbx.getInfo()).network?.rules?.['api.example.com']?.[0]?.transform?.headers
  const sbx = await box({ network: { rules: rules({ 'X-Key': 'value-of-a-rule', 'X-Team': 'blue' }) } })
  assert.deepEqual(await shown(), { 'X-Key': '******', 'X-Team': '******' })
  const inside = await sbx.commands.run('env; cat /proc/self/environ; grep -rl value-of-a-[r]ule /etc /home /run 2>/dev/null; true')
  assert.equal(inside.stdout.includes('value-of-a-rule'), false)
  const [child] = (await sbx.fork()).map((c) => c.sandbox ?? c)
  assert.deepEqual((await child.getInfo()).network?.rules, (await sbx.getInfo()).network?.rules)
  await child.kill()
  await sbx.updateNetwork({ rules: { ...rules({ 'X-Key': '******', 'X-New': 'x' }), '*.example.com': [] } }) // one is kept
  assert.deepEqual(await shown(), { 'X-Key': '******', 'X-New': '******' })
  await assert.rejects(sbx.updateNetwork({ rules: rules({ 'X-Gone': '******' }) }), /no value that could be kept/)
  await assert.rejects(sbx.updateNetwork({ rules: rules({ 'X-Key': 'a\nb' }) }), /must not contain CR or LF/)
  assert.deepEqual(Object.keys(await shown()), ['X-Key', 'X-New'])
  await sbx.updateNetwork({})
  assert.equal((await sbx.getInfo()).network?.rules, undefined)
  await sbx.kill()
})
