import { test } from 'node:test'
import assert from 'node:assert/strict'
import { AuthenticationError, Sandbox, SandboxNotFoundError, NotFoundError } from 'e2b'
import { box, sleep, until } from './setup.mjs'

test('create, info, kill', async () => {
  const sbx = await box({ metadata: { owner: 'me & you', n: '1' } })
  assert.match(sbx.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await sbx.isRunning(), true)
  const info = await sbx.getInfo()
  assert.equal(info.sandboxId, sbx.sandboxId)
  assert.equal(info.state, 'running')
  assert.deepEqual(info.metadata, { owner: 'me & you', n: '1' })
  assert.ok(info.startedAt instanceof Date && info.endAt > info.startedAt)
  assert.equal(await sbx.kill(), true)
  assert.equal(await sbx.kill(), false)
  assert.equal(await sbx.isRunning(), false)
  assert.equal(await Sandbox.kill('nosuchsandbox'), false)
  await assert.rejects(Sandbox.getInfo(sbx.sandboxId), SandboxNotFoundError)
  await assert.rejects(Sandbox.connect(sbx.sandboxId), SandboxNotFoundError)
})

test('a key that is not known', async () => {
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
})

test('an unknown template', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), (e) => e.statusCode === 404 || e instanceof NotFoundError)
})

test('list by metadata and state, in pages', async () => {
  const tag = 'list-' + Date.now()
  const a = await box({ metadata: { tag, which: 'a b&c=d' } })
  const b = await box({ metadata: { tag, which: 'b' } })
  const all = await Sandbox.list({ query: { metadata: { tag } } }).nextItems()
  assert.deepEqual(all.map((s) => s.sandboxId), [b.sandboxId, a.sandboxId])
  const one = await Sandbox.list({ query: { metadata: { which: 'a b&c=d' } } }).nextItems()
  assert.deepEqual(one.map((s) => s.sandboxId), [a.sandboxId])
  const pages = Sandbox.list({ limit: 1, query: { metadata: { tag }, state: ['running', 'paused'] } })
  const seen = []
  while (pages.hasNext) {
    seen.push(...(await pages.nextItems()).map((s) => s.sandboxId))
    assert.equal(pages.hasNext, Boolean(pages.nextToken))
  }
  assert.deepEqual(seen, [b.sandboxId, a.sandboxId])
  await a.pause()
  const paused = await Sandbox.list({ query: { metadata: { tag }, state: ['paused'] } }).nextItems()
  assert.deepEqual(paused.map((s) => [s.sandboxId, s.state]), [[a.sandboxId, 'paused']])
})

test('timeouts end it, and only setTimeout shortens them', async () => {
  const sbx = await box({ timeoutMs: 200_000 })
  const before = (await sbx.getInfo()).endAt
  await Sandbox.connect(sbx.sandboxId, { timeoutMs: 10_000 })
  assert.deepEqual((await sbx.getInfo()).endAt, before)
  await Sandbox.connect(sbx.sandboxId, { timeoutMs: 400_000 })
  assert.ok((await sbx.getInfo()).endAt > before)
  await sbx.setTimeout(1_000)
  await until(async () => !(await sbx.isRunning()), 'it is gone')
  await assert.rejects(sbx.getInfo(), SandboxNotFoundError)
})

test('pause keeps processes, memory and the token', async () => {
  const sbx = await box({ envs: { KEPT: 'yes' } })
  await sbx.files.write('note.txt', 'before')
  const job = await sbx.commands.run('i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.1; done', { background: true, timeoutMs: 0 })
  assert.equal(await sbx.pause(), true)
  assert.equal(await sbx.pause(), false)
  assert.equal(await sbx.isRunning(), false)
  assert.equal((await Sandbox.getInfo(sbx.sandboxId)).state, 'paused')
  const again = await Sandbox.connect(sbx.sandboxId)
  assert.equal(await again.files.read('note.txt'), 'before')
  assert.equal((await again.commands.run('echo $KEPT')).stdout, 'yes\n')
  const first = Number(await again.files.read('/tmp/count'))
  await until(async () => Number(await sbx.files.read('/tmp/count')) > first, 'the job goes on, and the old handle too')
  assert.ok((await sbx.commands.list()).some((p) => p.pid === job.pid))
})

test('the boot id is that of the boot: memory keeps it, in forks too', async () => {
  const boot = async (s) => (await s.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout.trim()
  const sbx = await box()
  const first = await boot(sbx)
  assert.match(first, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
  await sbx.pause()
  await sbx.connect()
  assert.equal(await boot(sbx), first)
  const [child] = (await sbx.fork()).map((c) => c.sandbox ?? c)
  assert.equal(await boot(child), first)
  await child.kill()
  await sbx.pause({ keepMemory: false })
  await sbx.connect()
  const second = await boot(sbx)
  assert.notEqual(second, first)
  await sbx.pause()
  await Sandbox.connect(sbx.sandboxId, { onResume: 'reboot' })
  assert.ok(![first, second].includes(await boot(sbx)))
  await sbx.kill()
})

test('keys that are made, shown, renamed and removed', async () => {
  const call = (method, path, body, key = process.env.E2B_API_KEY) => fetch(`${process.env.E2B_API_URL}${path}`, { method,
    headers: key.startsWith('sk_') ? { Authorization: `Bearer ${key}` } : { 'X-API-Key': key }, body: body && JSON.stringify(body) })
  const made = await call('POST', '/api-keys', { name: 'ci' })
  assert.equal(made.status, 201)
  const { id, key, name, mask } = await made.json()
  assert.match(key, /^e2b_[0-9a-f]{40}$/)
  assert.deepEqual([name, mask], ['ci', { prefix: 'e2b_', valueLength: 40, maskedValuePrefix: '', maskedValueSuffix: key.slice(-4) }])
  assert.ok(Array.isArray(await Sandbox.list({ apiKey: key }).nextItems()))
  const renamed = await call('PATCH', `/api-keys/${id}`, { name: 'builds' })
  assert.deepEqual([renamed.status, renamed.headers.get('content-length')], [202, '0'])
  const listed = (await (await call('GET', '/api-keys')).json()).find((k) => k.id === id)
  assert.deepEqual([listed.name, listed.key, listed.createdBy], ['builds', undefined, null])
  assert.equal((await call('DELETE', `/api-keys/${id}`)).status, 204)
  const again = await call('DELETE', `/api-keys/${id}`)
  assert.deepEqual([again.status, await again.json()], [404, { code: 404, message: 'id not found' }])
  await assert.rejects(Sandbox.list({ apiKey: key }).nextItems(), AuthenticationError)
  const token = await (await call('POST', '/access-tokens', { name: 'laptop' })).json()
  assert.match(token.token, /^sk_e2b_[0-9a-f]{40}$/)
  assert.equal((await call('GET', '/teams', undefined, token.token)).status, 200)
  assert.equal((await call('DELETE', `/access-tokens/${token.id}`)).status, 204)
  assert.equal((await call('GET', '/teams', undefined, token.token)).status, 401)
})

test('auto-pause and auto-resume', async () => {
  const sbx = await box({ timeoutMs: 2_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  await sbx.files.write('a.txt', 'kept')
  await until(async () => (await sbx.getInfo()).state === 'paused', 'it is paused')
  assert.equal(await sbx.files.read('a.txt'), 'kept')
  assert.equal((await sbx.getInfo()).state, 'running')
  await sbx.pause()
  assert.equal(await sbx.isRunning(), true) // who may wake it, has by asking
})

test('a gateway that is not in the template is no sandbox', async () => {
  const metadata = { gateway: String(Date.now()) }
  await assert.rejects(Sandbox.create({ metadata, mcp: { none: {} } }), /Failed to start MCP gateway/)
  assert.deepEqual(await Sandbox.list({ query: { metadata } }).nextItems(), [])
})

test('without auto-resume a paused one stays so', async () => {
  const sbx = await box({ lifecycle: { onTimeout: 'pause' } })
  await sbx.pause()
  await assert.rejects(sbx.commands.run('true'))
  assert.equal((await sbx.getInfo()).state, 'paused')
})

test('info in full, and older names of the same', async () => {
  const sbx = await box()
  assert.equal((await Sandbox.getFullInfo(sbx.sandboxId)).envdVersion, (await sbx.getInfo()).envdVersion)
  assert.equal(sbx.commands.supportsStdinClose, true)
  assert.match(sbx.getMcpUrl(), /^https:\/\/50005-/)
  await assert.rejects(sbx.getMcpToken())
  assert.equal(await sbx.betaPause(), true)
})

test('metrics', async () => {
  const sbx = await box()
  const [m] = await sbx.getMetrics()
  assert.ok(m.memUsed > 0 && m.memTotal >= m.memUsed && m.cpuCount >= 1)
  const hour = 3_600_000, now = Date.now()
  assert.ok((await sbx.getMetrics({ start: new Date(now - hour), end: new Date() })).length >= 1)
  assert.deepEqual(await sbx.getMetrics({ start: new Date(now - hour), end: new Date(now - hour / 2) }), [])
})

test('a stream breaks when its sandbox is killed', async () => {
  const sbx = await box()
  const job = await sbx.commands.run('sleep 100', { background: true })
  const end = assert.rejects(job.wait(), /sandbox was killed or reached its end of life/)
  await sleep(200)
  await sbx.kill()
  await end
})

test('twenty at once', async () => {
  const all = await Promise.all(Array.from({ length: 20 }, () => box()))
  const out = await Promise.all(all.map((s) => s.commands.run('echo $E2B_SANDBOX_ID')))
  assert.deepEqual(out.map((r) => r.stdout.trim()), all.map((s) => s.sandboxId))
  assert.equal(new Set(out.map((r) => r.stdout)).size, 20)
})
