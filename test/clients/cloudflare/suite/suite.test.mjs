// Runs every check of the Worker over the transports that are asked for, and what only
// a client outside can see: previews and WebSockets.
import assert from 'node:assert/strict'
import dns from 'node:dns'
import { createServer } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { storeOf } from './checks-buckets.mjs'
import * as hosts from './hosts.mjs'
import { missing } from './surface.mjs'

// Node asks the system's resolver, which knows no names beneath localhost.
const lookup = dns.lookup
dns.lookup = (name, options, done) => {
  if (typeof options === 'function') [options, done] = [{}, options]
  if (!name.endsWith('.localhost')) return lookup(name, options, done)
  const found = { address: '127.0.0.1', family: 4 }
  process.nextTick(() => (options?.all ? done(null, [found]) : done(null, found.address, found.family)))
}

const words = (name, all) => (process.env[name] ?? all).split(' ').filter(Boolean)
const kind = process.env.WORKER_HOST ?? 'miniflare'
const transports = words('WORKER_TRANSPORTS', 'http websocket rpc')
const only = words('WORKER_CHECKS', '')

// What is the same over every transport is tried over the first alone; what concerns
// connections that are kept, over those of rpc too.
const once = ['crowd', 'badIds', 'code', 'hosts', 'mounts', 'remoteMounts', 'badMounts', 'mountsAsleep', 'workersMounts', 'remoteBackups']
const kept = ['identity', 'awake', 'settings', 'stopping', 'sleeping', 'outbound', 'git', 'otherCode', 'badBackups', 'placement']
const wanted = (name, transport) => transport === transports[0] || !once.includes(name) && (transport === 'rpc' || !kept.includes(name))

let host
before(async () => { host = await hosts[kind]() })
after(() => host?.close())

const get = async (path, options) => {
  const r = await fetch(new URL(path, host.url), options)
  return r.headers.get('content-type')?.includes('json') ? r.json() : r.text()
}

async function check(name, transport) {
  const r = await get(`/check/${name}?transport=${transport}`)
  assert(r.ok, `${r.name}: ${r.error}\n${r.stack}`)
}

// Each check has sandboxes of its own, so a few go on at once.
test('checks', { concurrency: 4 }, async (t) => {
  const all = only.length ? only : await get('/checks')
  await Promise.all(transports.flatMap((transport) => all
    .filter((name) => wanted(name, transport))
    .map((name) => t.test(`${name} over ${transport}`, () => check(name, transport)))))
})

let boxes = 0
const fresh = () => `n${Date.now().toString(36)}${(boxes++).toString(36)}`
const exec = (id, command) => get(`/exec/${id}`, { method: 'POST', body: command })

function socket(path, base = host.url) {
  const url = new URL(path, base)
  url.protocol = 'ws:'
  const ws = new WebSocket(url)
  ws.binaryType = 'arraybuffer'
  const got = { text: '', notes: [] }
  ws.addEventListener('message', (e) => {
    if (typeof e.data === 'string') got.notes.push(e.data)
    else got.text += new TextDecoder().decode(e.data)
  })
  const open = new Promise((done, no) => {
    ws.addEventListener('open', done)
    ws.addEventListener('error', () => no(new Error(`no WebSocket at ${url}`)))
  })
  return { ws, got, open, say: (text) => ws.send(new TextEncoder().encode(text)) }
}

async function until(ok, what) {
  for (let i = 0; i < 600; i++) {
    const value = await ok()
    if (value) return value
    await new Promise((r) => setTimeout(r, 100))
  }
  throw new Error(`never came true: ${what()}`)
}

describe('terminals', () => {
  test('a terminal outlives its WebSocket', async () => {
    const id = fresh()
    const one = socket(`/terminal/${id}`)
    await one.open
    await until(() => one.got.notes.some((n) => JSON.parse(n).type === 'ready'), () => `ready in ${one.got.notes}`)
    one.say('echo $((6*7)); stty size\r')
    await until(() => /42\r\n/.test(one.got.text) && /30 100/.test(one.got.text), () => one.got.text)
    one.ws.send(JSON.stringify({ type: 'resize', cols: 120, rows: 40 }))
    one.say('until [ "$(stty size)" = "40 120" ]; do sleep 0.1; done; KEPT=here; echo re-sized | tr -d -\r')
    await until(() => /resized/.test(one.got.text), () => one.got.text)
    one.ws.close()
    const two = socket(`/terminal/${id}`)
    await two.open
    await until(() => /resized/.test(two.got.text), () => `what was there before, in ${two.got.text}`)
    two.say('echo [$KEPT]\r')
    await until(() => /\[here\]/.test(two.got.text), () => two.got.text)
    two.ws.close()
    await get(`/destroy/${id}`)
  })
  for (const session of ['mine', 'proxied']) {
    test(`the terminal of a session: ${session}`, async () => {
      const id = fresh()
      const one = socket(`/terminal/${id}?session=${session}`)
      await one.open
      one.say('pwd\r')
      await until(() => /\/workspace\r\n/.test(one.got.text), () => one.got.text)
      one.ws.close()
      await get(`/destroy/${id}`)
    })
  }
})

// An echo server for WebSockets without any package.
const echo = (port) => `cat > /tmp/echo.js <<'X'
const { createServer } = require('http'), { createHash } = require('crypto')
const s = createServer((q, r) => r.end('page for ' + q.headers.host))
s.on('upgrade', (q, c) => {
  c.write('HTTP/1.1 101 S\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64') + '\\r\\n\\r\\n')
  c.on('data', (b) => { const n = b[1] & 127, m = b.subarray(2, 6), d = Buffer.from(b.subarray(6, 6 + n).map((x, i) => x ^ m[i % 4])); if ((b[0] & 15) === 8) return c.end(); c.write(Buffer.concat([Buffer.from([0x81, n]), d])) })
  c.on('error', () => {})
})
s.listen(${port})
X
(node /tmp/echo.js > /dev/null 2>&1 &) ; for i in $(seq 300); do curl -s localhost:${port} > /dev/null && break; sleep 0.1; done`

async function echoes(s) {
  await s.open
  s.ws.send('hello')
  await until(() => s.got.notes.includes('hello'), () => `hello in ${s.got.notes}`)
  s.ws.close()
}

test('ports of a sandbox, from outside', async () => {
  const id = fresh()
  await exec(id, echo(8300))
  await echoes(socket(`/connect/${id}?port=8300`))
  const hostname = `localhost:${host.url.port}`
  const given = await get(`/expose/${id}?port=8300&hostname=${hostname}`)
  assert.match(given.url, new RegExp(`^http://8300-${id}-[a-z0-9_]{16}\\.localhost:`))
  assert.match(await (await fetch(given.url)).text(), /^page for /)
  await echoes(socket('/', given.url))
  const wrong = await fetch(given.url.replace(/-[a-z0-9_]+\.localhost/, '-0123456789abcdef.localhost'))
  assert.equal(wrong.status, 404)
  assert.equal((await wrong.json()).code, 'INVALID_TOKEN')
  await get(`/unexpose/${id}?port=8300`)
  assert.equal((await fetch(given.url)).status, 404)
  await get(`/destroy/${id}`)
})

test('a preview ends with what it showed', async () => {
  const id = fresh()
  await exec(id, echo(8301))
  const expose = () => get(`/expose/${id}?port=8301&token=stays_1&hostname=localhost:${host.url.port}`)
  const { url } = await expose()
  assert.equal((await fetch(url)).status, 200)
  await get(`/stop/${id}`)
  await until(async () => (await get(`/state/${id}`)).startsWith('stopped'), () => 'it stops')
  const stale = async () => {
    const r = await fetch(url)
    assert.deepEqual([r.status, (await r.json()).code], [410, 'STALE_PREVIEW_URL'])
  }
  await stale()
  assert((await get(`/state/${id}`)).startsWith('stopped'), 'a preview wakes nothing')
  await until(async () => (await exec(id, 'echo awake')).stdout === 'awake', () => 'it is awake')
  await stale()
  assert.equal((await expose()).url, url)
  assert.match(await (await fetch(url)).text(), /^page for /, 'the server went on where it was')
  await get(`/destroy/${id}`)
})

test('the image is that of the Dockerfile', { skip: kind !== 'wrangler' }, async () => {
  const id = fresh()
  assert.equal((await exec(id, 'echo $OF_DOCKERFILE')).stdout, 'set there')
  await get(`/destroy/${id}`)
})

// bridge asks the bridge, which needs no Worker, about sandboxes.
async function bridge(method, path, body, signal) {
  const r = await fetch(`${process.env.BERTH_URL}/cloudflare/v1/sandbox${path}`,
    { method, signal, headers: { authorization: `Bearer ${process.env.BERTH_API_KEY}` }, body: body && JSON.stringify(body) })
  const text = await r.text()
  return { status: r.status, text, value: r.headers.get('content-type') === 'application/json' ? JSON.parse(text) : null }
}

test('the bridge mounts a bucket', { skip: only.length > 0 || kind !== 'miniflare' }, async () => {
  const store = storeOf(process.env, 'files')
  const at = `b${crypto.randomUUID().slice(0, 8)}`
  await store.put(`${at}/`, '')
  await store.put(`${at}/of-bucket`, 'from the bucket')
  const { id } = (await bridge('POST', '')).value
  const asked = async (what, options, body) => bridge('POST', `/${id}/${what}`, { mountPath: '/mnt/of bucket', ...body, ...options && { bucket: 'files', options: { endpoint: process.env.S3_HTTP, ...options } } })
  const said = async (line) => {
    const { text } = await bridge('POST', `/${id}/exec`, { argv: ['sh', '-c', line] })
    return [...text.matchAll(/event: (stdout|stderr)\ndata: (.*)/g)].map((m) => Buffer.from(m[2], 'base64')).join('') + text.match(/"exit_code":(\d+)/)?.[1]
  }
  const credentials = { accessKeyId: process.env.S3_KEY, secretAccessKey: process.env.S3_SECRET }
  const wrong = await asked('mount', { credentials: { accessKeyId: 'wrong', secretAccessKey: 'hush' } })
  assert.deepEqual([wrong.status, wrong.value.code, wrong.text.includes('hush')], [502, 'mount_error', false], wrong.text)
  assert.equal(await said('ls -d "/mnt/of bucket" 2>/dev/null'), '2', 'what it had made is gone')
  assert.equal((await asked('mount', { credentials, prefix: `/${at}` })).text, '{"ok":true}')
  assert.equal(await said('cd "/mnt/of bucket" && cat of-bucket && echo from the sandbox > of-sandbox'), 'from the bucket0')
  assert.equal(await store.text(`${at}/of-sandbox`), 'from the sandbox\n')
  const again = await asked('mount', { credentials })
  assert.deepEqual([again.status, again.value.code], [502, 'mount_error'])
  assert.match(again.text, /already in use/)
  assert.equal(await said(`grep -rlF '${credentials.secretAccessKey}' /tmp /etc 2>/dev/null | wc -l`), '0\n0', 'the keys lie nowhere')
  assert.equal((await asked('unmount')).text, '{"ok":true}')
  assert.deepEqual([await said('ls -d "/mnt/of bucket" 2>/dev/null'), (await asked('unmount')).value.code], ['2', 'unmount_error'])
  assert.equal((await asked('mount', { credentials, prefix: `/${at}`, readOnly: true }, { mountPath: '/workspace/bucket' })).text, '{"ok":true}')
  assert.equal(await said('cat bucket/of-sandbox; echo x > bucket/no'), 'from the sandbox\nsh: 1: cannot create bucket/no: Read-only file system\n2')

  // Of a server that says nothing nothing stays, once who has asked for it has left.
  const { hostname } = new URL(process.env.S3_HTTP)
  const left = new AbortController()
  const silent = createServer((c) => { c.on('error', () => {}); left.abort() })
  await new Promise((done) => silent.listen(0, hostname, done))
  const endpoint = `http://${hostname}:${silent.address().port}`
  await assert.rejects(bridge('POST', `/${id}/mount`, { bucket: 'files', mountPath: '/mnt/silent', options: { endpoint, credentials } }, left.signal), /abort/i)
  const rest = () => said('ls -A /tmp | grep -F .s3-; grep /mnt/silent /proc/mounts; pgrep -f "[s]3fs.*/mnt/silent"')
  let stays = ''
  await until(async () => (stays = await rest()) === '1', () => `nothing of it stays: ${stays}`)
  silent.close()

  const paused = await fetch(`${process.env.BERTH_URL}/v1/sandboxes/bridge-${id}/pause`, { method: 'POST', headers: { authorization: `Bearer ${process.env.BERTH_API_KEY}` } })
  assert.equal(paused.status, 200, await paused.text())
  assert.equal(await said('cat bucket/of-bucket'), 'from the bucket0', 'it is mounted after its sleep')
  assert.equal((await bridge('DELETE', `/${id}`)).status, 204) // while it is mounted
})

test('every public method is used', { skip: only.length > 0 || kind !== 'miniflare' }, async () => {
  assert.deepEqual(await missing(await get('/used')), [])
})
