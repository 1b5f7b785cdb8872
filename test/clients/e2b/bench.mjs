// Takes times of the clients as they are published, each beside the same done by plain
// requests: of the native API, and in the clients' own wire form where that tells what
// the server adds from what the client does. It is run by the program in bench/, whose
// server BERTH_URL and BERTH_API_KEY name, and prints a line of JSON for each row.
const url = process.env.BERTH_URL, key = process.env.BERTH_API_KEY
Object.assign(process.env, { E2B_API_KEY: key.replace(/^berth_/, 'e2b_'), E2B_API_URL: `${url}/e2b`, E2B_SANDBOX_URL: url })
const { Sandbox } = await import('@e2b/code-interpreter')

const login = ['/bin/bash', '-l', '-c', 'true'] // as the client wraps a command
const live = { timeoutMs: 600_000 }
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

/** A request of the native API, read to its end. */
async function native(method, path, body, headers = {}) {
  const answer = await fetch(`${url}/v1${path}`, { method, headers: { Authorization: `Bearer ${key}`, ...headers },
    body: body === undefined || body instanceof Uint8Array ? body : JSON.stringify(body) })
  const bytes = Buffer.from(await answer.arrayBuffer())
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${bytes}`)
  return bytes
}
const json = async (...request) => JSON.parse(await native(...request))
const exec = (id) => native('POST', `/sandboxes/${id}/exec`, { argv: login, cwd: '/home/user' }, { Accept: 'text/event-stream' })
const code = (id) => native('POST', `/sandboxes/${id}/code`, { code: '1+1' }, { Accept: 'application/x-ndjson' })
const remove = (id) => native('DELETE', `/sandboxes/${id}`)

/** A request to a sandbox's port in the clients' wire form. */
async function wire(sandbox, port, path, type, body) {
  const answer = await fetch(url + path, { method: 'POST', body, headers: { 'Content-Type': type, 'Connect-Protocol-Version': '1',
    'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': port, 'X-Access-Token': sandbox.envdAccessToken ?? '' } })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`)
  return text
}
function start(sandbox) {
  const message = Buffer.from(JSON.stringify({ process: { cmd: login[0], args: login.slice(1), envs: {} }, stdin: false }))
  const frame = Buffer.alloc(5)
  frame.writeUInt32BE(message.length, 1)
  return wire(sandbox, '49983', '/process.Process/Start', 'application/connect+json', Buffer.concat([frame, message]))
}
const execute = (sandbox) => wire(sandbox, '49999', '/execute', 'application/json', JSON.stringify({ code: '1+1' }))

/** Takes turns of several ways to do the same, each turn beginning with another one, and
 * prints a row for each. more names pairs of them: a row tells how much longer the first
 * of a pair took than the second, turn by turn, so that what slows a while slows both. */
async function compare(unit, turns, ways, more = []) {
  const taken = ways.map(() => [])
  for (let turn = -1; turn < turns; turn++) { // the first is not counted
    for (let k = 0; k < ways.length; k++) {
      const i = (turn + 1 + k) % ways.length
      const { before, run, after } = ways[i]
      const thing = await before?.()
      const began = performance.now()
      const done = await run(thing)
      const took = performance.now() - began
      if (turn >= 0) taken[i].push(took)
      await after?.(done, thing)
    }
  }
  const row = (name, samples) => console.log(JSON.stringify({ name, unit, samples }))
  for (const [i, { name }] of ways.entries()) row(name, taken[i])
  for (const [name, i, j] of more) row(name, taken[i].map((t, turn) => t - taken[j][turn]))
}

/** Waits until machines of the pool wait and no more are being made: that begins a while
 * after a create, and would take its time from the turn that comes next. */
async function pooled() {
  for (let same = 0, before = -1; same < 20; await sleep(100)) {
    const { warm } = await json('GET', '/status')
    same = warm === before && warm >= 2 ? same + 1 : 0
    before = warm
  }
}

const box = await Sandbox.create('base', live)
const { limits } = await json('GET', `/sandboxes/${box.sandboxId}`)

await compare('ms', 15, [
  { name: 'create + first command, client', before: pooled, after: (s) => s.kill(),
    run: async () => { const s = await Sandbox.create('base', live); await s.commands.run('true'); return s } },
  { name: '  native API', before: pooled, after: remove,
    run: async () => { const { id } = await json('POST', '/sandboxes', { template: 'base', limits }); await exec(id); return id } },
])

const added = [['  what the dialect adds', 1, 2], ['  what the client adds', 0, 1]]
await compare('ms', 200, [
  { name: "commands.run('true'), client", run: () => box.commands.run('true') },
  { name: '  its request alone', run: () => start(box) },
  { name: '  native API', run: () => exec(box.sandboxId) },
], added)

const data = new Uint8Array(10 << 20).map((_, i) => i * 31 % 251)
const file = `/sandboxes/${box.sandboxId}/files?path=/home/user/data`
await compare('ms', 15, [
  { name: 'write 10 MiB, client', run: () => box.files.write('data', new Blob([data])) },
  { name: '  native API', run: () => native('PUT', file, data) },
])
await compare('ms', 15, [
  { name: 'read 10 MiB, client', run: () => box.files.read('data', { format: 'bytes' }) },
  { name: '  native API', run: () => native('GET', file) },
])

await compare('ms', 8, [
  { name: 'fork → first command, client', before: () => sleep(1000), after: (s) => s.kill(),
    run: async () => { const [one] = await box.fork({ count: 1 }); const s = one.sandbox ?? one; await s.commands.run('true'); return s } },
  { name: '  native API', before: () => sleep(1000), after: remove,
    run: async () => { const { children } = await json('POST', `/sandboxes/${box.sandboxId}/fork`, { count: 1 }); const { id } = children[0].sandbox; await exec(id); return id } },
])
await box.kill()

const coder = await Sandbox.create(live)
const shape = { template: 'code-interpreter', limits: (await json('GET', `/sandboxes/${coder.sandboxId}`)).limits }
await compare('ms', 200, [
  { name: "runCode('1+1'), client", run: () => coder.runCode('1+1') },
  { name: '  its request alone', run: () => execute(coder) },
  { name: '  native API', run: () => code(coder.sandboxId) },
], added)
const settled = async () => { await pooled(); await sleep(3000) } // interpreters are started ahead
await compare('ms', 8, [
  { name: "runCode('1+1'), a sandbox's first, client", run: (s) => s.runCode('1+1'), after: (_, s) => s.kill(),
    before: async () => { await settled(); return Sandbox.create(live) } },
  { name: '  native API', run: code, after: (_, id) => remove(id),
    before: async () => { await settled(); return (await json('POST', '/sandboxes', shape)).id } },
])
await coder.kill()
