// A sandbox's whole life, as a Worker in workerd leads it.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { WebSocket } from 'ws'
import { boxes, open, patience, until } from './setup.mjs'

let w
before(async () => { w = await open() }, { timeout: patience })
after(async () => { await w?.close() }, { timeout: patience })

// listening waits until a port of a sandbox is served.
const listening = (id, port) => until(`port ${port}`, async () => (await w.call(id, 'exec', { command: `(: < /dev/tcp/127.0.0.1/${port}) 2> /dev/null` })).exitCode === 0)

test('a command, a file, a port', { timeout: patience }, async () => {
  assert.equal(await w.run('one', 'id -un; pwd'), 'root\n/workspace')
  await w.call('one', 'write', { path: '/workspace/f', content: 'kept' })
  assert.equal((await w.call('one', 'read', { path: '/workspace/f' })).content, 'kept')
  const made = (await boxes()).length
  assert.equal(await w.run('one', 'cat f'), 'kept', 'the same id leads to the same sandbox')
  assert.equal((await boxes()).length, made)
  assert.equal(await w.run('another', 'ls'), '')
  await w.call('another', 'destroy')

  const p = await w.call('one', 'start', { command: 'python3 -m http.server 8080' })
  await listening('one', 8080)
  assert.deepEqual(await w.call('one', 'fetch', { port: 8080, path: '/f' }), { status: 200, body: 'kept' })
  assert.equal((await w.call('one', 'process', { id: p.id })).status, 'running')
})

// echo is a server of WebSockets, as small as can be.
const echo = `
const { createHash } = require('crypto')
require('http').createServer().on('upgrade', (q, s) => {
  const key = createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  s.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + key + '\\r\\n\\r\\n')
  s.on('data', (b) => {
    const n = b[1] & 127
    const text = Buffer.from(b.subarray(6, 6 + n).map((x, i) => x ^ b[2 + (i & 3)]))
    if ((b[0] & 15) === 1) s.write(Buffer.concat([Buffer.from([0x81, n]), text]))
  })
}).listen(9000, '0.0.0.0')`

test('a WebSocket to a port', { timeout: patience }, async () => {
  await w.call('one', 'write', { path: '/workspace/echo.js', content: echo })
  await w.call('one', 'start', { command: 'node /workspace/echo.js' })
  await listening('one', 9000)
  const answer = await new Promise((resolve, reject) => {
    const s = new WebSocket(new URL('/one/connect?port=9000', w.url.replace('http', 'ws')))
    s.on('open', () => s.send('to and fro'))
    s.on('message', (m) => { resolve(String(m)); s.terminate() })
    s.on('error', reject)
  })
  assert.equal(answer, 'to and fro')
})

test('what it sends is caught', { timeout: patience }, async () => {
  const run = (c) => w.run('one', c)
  assert.equal(await run('curl -sS http://any.example/path'), 'caught GET http://any.example/path ')
  assert.equal(await run('curl -sS https://any.example/path -d body'), 'caught POST https://any.example/path body')
  assert.equal(await run('curl -sSi https://any.example/ | grep -i x-caught | tr -d "\\r"'), 'x-caught: yes')
  assert.equal(await run('curl -sS http://10.1.2.3/x'), 'caught GET http://10.1.2.3/x ')
  assert.match(await run('curl -sS https://one.example/only'), /^one of \w+: \/only$/)
  assert.equal(await run(`python3 -c 'import urllib.request as u; print(u.urlopen("https://py.example/").read().decode())'`), 'caught GET https://py.example/ ')
  assert.equal(await run(`node -e 'fetch("https://node.example/").then((r) => r.text()).then(console.log)'`), 'caught GET https://node.example/ ')
  assert.equal(await run('curl -sS --cacert /etc/cloudflare/certs/cloudflare-containers-ca.crt --capath /none https://ca.example/'), 'caught GET https://ca.example/ ')
  await w.call('one', 'deny', { hosts: ['denied.example'] })
  assert.equal(await run(`curl -sS -o /dev/null -w '%{http_code}' http://denied.example/`), '520')
  assert.equal(await run('curl -sS http://any.example/again'), 'caught GET http://any.example/again ')
})

test('it sleeps, and wakes where it was', { timeout: patience }, async () => {
  await w.run('one', 'sleep 100000 & echo $! > pid; export KEPT=yes')
  const before = await boxes()
  await w.call('one', 'stop')
  await until('it sleeps', async () => (await w.call('one', 'state')).status.startsWith('stopped'))
  assert.deepEqual((await boxes()).map((b) => b.state), ['paused'])
  assert.equal(await w.run('one', 'cat f; kill -0 $(cat pid) && echo alive'), 'keptalive')
  assert.deepEqual((await boxes()).map((b) => [b.id, b.state]), [[before[0].id, 'running']])
  assert.equal((await w.call('one', 'fetch', { port: 8080, path: '/f' })).body, 'kept', 'its servers went on')
  assert.equal(await w.run('one', 'curl -sS https://any.example/'), 'caught GET https://any.example/ ')
})

test('it outlives the server', { timeout: patience, skip: process.env.RESTART_URL ? false : 'no server to restart' }, async () => {
  const r = await fetch(process.env.RESTART_URL, { method: 'POST', signal: AbortSignal.timeout(patience) })
  const now = await r.json()
  process.env.BERTH_URL = now.url
  assert.equal(await w.run('one', 'cat f; kill -0 $(cat pid) && echo alive'), 'keptalive')
  assert.equal((await w.call('one', 'fetch', { port: 8080, path: '/f' })).body, 'kept')
  assert.equal(await w.run('one', 'curl -sS https://any.example/'), 'caught GET https://any.example/ ')
})

test('it is destroyed', { timeout: patience }, async () => {
  await w.call('one', 'destroy')
  assert.deepEqual(await boxes(), [])
  assert.equal(await w.run('one', 'ls'), '', 'the next of the name begins anew')
  await w.call('one', 'destroy')
})

test('it is destroyed asleep', { timeout: patience }, async () => {
  await w.run('asleep', 'echo old > f')
  await w.call('asleep', 'stop')
  const state = async () => JSON.parse((await boxes())[0].metadata['cloudflare.container'])
  await until('workerd has forgotten it', async () => (await state()).gone)
  await w.call('asleep', 'destroy')
  assert.equal(await w.run('asleep', 'ls'), '', 'the next of the name begins anew')
  await w.call('asleep', 'destroy')
  assert.deepEqual(await boxes(), [])
})

test('nothing outlives its session', { timeout: patience }, async () => {
  const other = await open()
  await other.run('sleeps', 'echo old > f')
  await other.call('sleeps', 'stop')
  await until('it sleeps', async () => (await other.call('sleeps', 'state')).status.startsWith('stopped'))
  assert.equal((await boxes()).length, 1)
  await other.close()
  assert.deepEqual(await boxes(), [])
})

test('folders are kept', { timeout: patience }, async () => {
  assert.deepEqual(await w.call('folders', 'folders'), ['made', 'one\n640\nagain', 'one\n640\nagain'])
  assert.deepEqual(await boxes(), [])
})

test('many at once', { timeout: patience }, async () => {
  const ids = Array.from({ length: 8 }, (_, i) => `many-${i}`)
  assert.deepEqual(await Promise.all(ids.map((id) => w.run(id, `echo ${id}`))), ids)
  assert.equal((await boxes()).length, ids.length)
  await Promise.all(ids.map((id) => w.call(id, 'destroy')))
  assert.deepEqual(await boxes(), [])
})
