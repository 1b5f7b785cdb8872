import { test } from 'node:test'
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'
import { box, until } from './setup.mjs'

// Ports have names of their own, and those need the server's domain.
const skip = process.env.E2B_DOMAIN ? false : 'SKIPPED: ports by host name need E2B_DOMAIN; TestByDomain runs this'

const get = async (url, headers = {}) => {
  const r = await fetch(url, { headers })
  return [r.status, await r.text()]
}

test('a port by its name', { skip }, async () => {
  const sbx = await box()
  const url = `https://${sbx.getHost(8000)}/`
  const [status, text] = await get(url)
  assert.deepEqual([status, JSON.parse(text)], [502, { sandboxId: sbx.sandboxId, message: 'The sandbox is running but port is not open', port: 8000, code: 502 }])
  await sbx.commands.run('cd /tmp && echo found > page && python3 -m http.server 8000', { background: true, timeoutMs: 0 })
  await until(async () => (await get(url + 'page'))[1] === 'found\n', 'the server answers')
  await sbx.kill()
  const [gone, body] = await get(url)
  assert.deepEqual([gone, JSON.parse(body).message], [502, 'The sandbox was not found'])
})

test('a port that asks for a token', { skip }, async () => {
  const sbx = await box({ network: { allowPublicTraffic: false } })
  await sbx.commands.run('cd /tmp && echo found > page && python3 -m http.server 8000', { background: true, timeoutMs: 0 })
  const url = `https://${sbx.getHost(8000)}/page`
  assert.equal((await get(url))[0], 403)
  await until(async () => (await get(url, { 'e2b-traffic-access-token': sbx.trafficAccessToken }))[1] === 'found\n', 'with the token it answers')
})

test('a request wakes a sandbox that may be woken', { skip }, async () => {
  const sbx = await box({ lifecycle: { onTimeout: 'pause', autoResume: true } })
  await sbx.commands.run('cd /tmp && echo found > page && python3 -m http.server 8000', { background: true, timeoutMs: 0 })
  const url = `https://${sbx.getHost(8000)}/page`
  await until(async () => (await get(url))[1] === 'found\n', 'the server answers')
  await sbx.pause()
  assert.deepEqual(await get(url), [200, 'found\n'])
  assert.equal((await Sandbox.getInfo(sbx.sandboxId)).state, 'running')
})
