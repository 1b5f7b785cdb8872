import { test } from 'node:test'
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { Sandbox } from 'e2b'
import { box, sleep, until } from './setup.mjs'

const api = process.env.E2B_API_URL, ports = process.env.E2B_SANDBOX_URL, key = process.env.E2B_API_KEY

/** A request of the control API; a body that is text is sent as it is. */
const control = (method, path, body, headers = { 'X-API-Key': key }) => fetch(api + path, { method, headers,
  body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body) })

/** A request to a port of a sandbox. */
const traffic = (sandbox, port, path, init = {}) => fetch(ports + path, { ...init, headers: { 'E2b-Sandbox-Id': sandbox.sandboxId ?? sandbox,
  'E2b-Sandbox-Port': String(port), 'X-Access-Token': sandbox.envdAccessToken ?? '', ...init.headers } })

/** A frame of a stream of the guest's services. */
function frame(message) {
  const body = Buffer.from(JSON.stringify(message)), head = Buffer.alloc(5)
  head.writeUInt32BE(body.length, 1)
  return Buffer.concat([head, body])
}
const start = (sandbox, process, headers, signal) => traffic(sandbox, 49983, '/process.Process/Start', { method: 'POST', signal,
  headers: { 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1', ...headers }, body: frame({ process, stdin: false }) })

test('every error of the control API is its status, in the body too', async () => {
  const sbx = await box()
  const id = sbx.sandboxId
  for (const [status, text, method, path, body, headers] of [
    [401, /API key/, 'GET', '/v2/sandboxes', undefined, {}],
    [404, /^sandbox "nosuch" doesn't exist or you don't have access to it$/, 'GET', '/sandboxes/nosuch'],
    [404, /doesn't exist/, 'DELETE', '/sandboxes/nosuch'],
    [404, /doesn't exist/, 'POST', '/v2/sandboxes/nosuch/connect', {}],
    [404, /doesn't exist/, 'PUT', '/sandboxes/nosuch/network', {}],
    [404, /no-such-template/, 'POST', '/v2/sandboxes', { templateID: 'no-such-template' }],
    [400, /templateID/, 'POST', '/v2/sandboxes', {}],
    [400, /Error when parsing request/, 'POST', '/sandboxes', '{"templateID":'],
    [400, /Timeout cannot be greater than \d+ hours/, 'POST', '/v2/sandboxes', { templateID: 'base', timeout: 2 ** 33 }],
    [400, /timeout is required/, 'POST', `/sandboxes/${id}/timeout`, {}],
    [400, /0\.0\.0\.0\/0/, 'PUT', `/sandboxes/${id}/network`, { allowOut: ['example.com'] }],
    [400, /denyOut/, 'PUT', `/sandboxes/${id}/network`, { denyOut: ['example.com'] }],
    [400, /./, 'GET', '/v2/sandboxes?limit=0'],
    [400, /./, 'GET', '/v2/sandboxes?limit=101'],
    [400, /./, 'GET', '/v2/sandboxes?nextToken=nonsense'],
    [400, /./, 'GET', '/v2/sandboxes?order=sideways'],
    [409, /already running/, 'POST', `/sandboxes/${id}/resume`, {}],
    [404, /no route/, 'GET', '/nowhere'],
  ]) {
    const answer = await control(method, path, body, headers)
    const said = await answer.json()
    assert.deepEqual([answer.status, said.code], [status, status], `${method} ${path}`)
    assert.match(said.message, text, `${method} ${path}`)
  }
  assert.equal((await control('POST', `/sandboxes/${id}/pause`, {})).status, 204)
  const again = await control('POST', `/sandboxes/${id}/pause`, {})
  assert.deepEqual([again.status, (await again.json()).code], [409, 409])
})

test('lists in either order, and the last page has no next', async () => {
  const tag = 'pages-' + Date.now()
  const ids = []
  for (let i = 0; i < 3; i++) ids.push((await box({ metadata: { tag } })).sandboxId)
  const page = async (query) => {
    const answer = await control('GET', `/v2/sandboxes?metadata=${encodeURIComponent(`tag=${tag}`)}&${query}`)
    return [(await answer.json()).map((s) => s.sandboxID), answer.headers.get('X-Next-Token')]
  }
  const [first, next] = await page('order=asc&limit=2')
  assert.deepEqual(first, ids.slice(0, 2))
  assert.ok(next)
  assert.deepEqual(await page(`order=asc&limit=2&nextToken=${encodeURIComponent(next)}`), [ids.slice(2), null])
  assert.deepEqual(await page('limit=3'), [ids.toReversed(), null])
})

test('what is not there, on the way to a port', async () => {
  const sbx = await box()
  for (const [sandbox, port, path, status, said] of [
    ['nosuchsandbox', 49983, '/health', 502, { sandboxId: 'nosuchsandbox', message: 'The sandbox was not found', code: 502 }],
    [sbx, 4321, '/', 502, { sandboxId: sbx.sandboxId, message: 'The sandbox is running but port is not open', port: 4321, code: 502 }],
    [sbx, 49983, '/init', 404, undefined],
  ]) {
    const answer = await traffic(sandbox, port, path, { method: path === '/init' ? 'POST' : 'GET' })
    assert.equal(answer.status, status, path)
    if (said) assert.deepEqual(await answer.json(), said)
  }
  assert.equal((await fetch(`${ports}/health`, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId } })).status, 400)
  const unsigned = await fetch(`${ports}/files?path=x`, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983' } })
  assert.deepEqual([unsigned.status, (await unsigned.json()).message], [401, 'missing signature query parameter'])
})

test('a stream that says nothing is kept alive, and one that is left ends nothing', async () => {
  const sbx = await box()
  const quiet = await start(sbx, { cmd: 'sh', args: ['-c', 'until [ -e /tmp/enough ]; do sleep 0.2; done'] }, { 'Keepalive-Ping-Interval': '1' })
  let heard = ''
  for await (const chunk of quiet.body) {
    heard += Buffer.from(chunk).toString('latin1')
    if (heard.split('"keepalive"').length > 2) await sbx.files.write('/tmp/enough', '') // twice
  }
  assert.match(heard, /"start".*"keepalive".*"keepalive".*"end"/s)
  const leave = new AbortController()
  const left = await start(sbx, { cmd: 'sh', args: ['-c', 'while sleep 0.1; do echo >>/tmp/goes-on; done'] }, {}, leave.signal)
  await left.body.getReader().read()
  leave.abort()
  await until(() => sbx.files.exists('/tmp/goes-on'), 'it runs')
  const size = async () => (await sbx.files.getInfo('/tmp/goes-on')).size
  const before = await size()
  await until(async () => (await size()) > before, 'it goes on')
})

test('an upload that is cut is no upload, 200 MB arrive whole', async () => {
  const sbx = await box()
  const mb = Buffer.alloc(1 << 20, 'berth ')
  const cut = new AbortController()
  async function* half() {
    for (let i = 0; i < 8; i++) {
      yield mb
      await sleep(10)
    }
    cut.abort()
    await new Promise((done) => setTimeout(done, 60_000).unref()) // nobody asks for more
  }
  await assert.rejects(traffic(sbx, 49983, '/files?path=big', { method: 'POST', body: ReadableStream.from(half()), duplex: 'half', signal: cut.signal,
    headers: { 'Content-Type': 'application/octet-stream' } }))
  const sum = createHash('sha256')
  for (let i = 0; i < 200; i++) sum.update(mb)
  const want = sum.digest('hex')
  await sbx.files.write('big', new Blob(Array(200).fill(mb)), { requestTimeoutMs: 0 })
  assert.equal((await sbx.commands.run('sha256sum <big', { timeoutMs: 0 })).stdout.split(' ')[0], want)
  const got = createHash('sha256')
  for await (const chunk of await sbx.files.read('big', { format: 'stream', requestTimeoutMs: 0 })) got.update(chunk)
  assert.equal(got.digest('hex'), want)
  assert.deepEqual((await sbx.files.list('.')).filter((f) => f.name.includes('big')).map((f) => f.name), ['big']) // no halves
})
