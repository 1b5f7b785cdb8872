// What a sandbox sends outside, where a site tells which headers came. It runs against
// a server that reaches that site.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { Secret } from 'e2b'
import { box } from './setup.mjs'

const zone = process.env.SITE
const came = async (sbx, host, flags = '') => JSON.parse((await sbx.commands.run(`curl -sS --max-time 60 ${flags} https://${host}.${zone}/`)).stdout)

test('headers of rules are added on the way out', async () => {
  const name = 'outside-' + Date.now()
  await Secret.create(name, 'hidden-one')
  await Secret.create(`${name}.too`, 'other')
  const rules = { [`api.${zone}`]: [{ transform: { headers: { Authorization: `Bearer ${Secret.fill(name)}`, 'X-Both': `${Secret.fill(name)}:${Secret.fill(`${name}.too`)}:${Secret.fill(name)}`, 'X-Plain': 'as-it-is' } } }],
    [`*.${zone}`]: [{ transform: { headers: { 'X-Wide': 'any' } } }] }
  const sbx = await box({ network: { rules } })
  assert.deepEqual(await came(sbx, 'api', "-H 'Authorization: mine'"), { Authorization: 'Bearer hidden-one', 'X-Both': 'hidden-one:other:hidden-one', 'X-Plain': 'as-it-is' })
  assert.deepEqual(await came(sbx, 'other'), { 'X-Wide': 'any' })
  await Secret.update(name, 'hidden-two')
  assert.equal((await came(sbx, 'api')).Authorization, 'Bearer hidden-two')
  await sbx.updateNetwork({ rules: { [`api.${zone}`]: [{ transform: { headers: { 'X-Plain': 'changed' } } }] } })
  assert.deepEqual(await came(sbx, 'api'), { 'X-Plain': 'changed' })
  await sbx.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: [`api.${zone}`] })
  assert.deepEqual(await came(sbx, 'api', '-k'), {})
  await assert.rejects(came(sbx, 'other', '-k'))
  await sbx.updateNetwork({ denyOut: ['0.0.0.0/0'] })
  await assert.rejects(came(sbx, 'api', '-k'))
  await sbx.kill()
  await Promise.all([Secret.destroy(name), Secret.destroy(`${name}.too`)])
})
