// Takes times of a Worker's sandboxes in workerd, each beside the same done by requests of
// the native API, by turns. It is run by the program in bench/, whose server BERTH_URL,
// BERTH_API_KEY and BERTH_DOCKER_SOCKET name, and prints a line of JSON for each row.
import { open } from './setup.mjs'

const url = process.env.BERTH_URL, key = process.env.BERTH_API_KEY
const template = 'cloudflare-sandbox' // that stands for the package's image
const many = 50
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

/** A request of the native API, read to its end. */
async function native(method, path, body) {
  const answer = await fetch(`${url}/v1${path}`, { method, headers: { Authorization: `Bearer ${key}` }, body: body && JSON.stringify(body) })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
  return text
}
const json = async (...request) => JSON.parse(await native(...request))
const create = async () => (await json('POST', '/sandboxes', { template })).id
const exec = (id) => native('POST', `/sandboxes/${id}/exec`, { argv: ['/bin/bash', '-c', 'true'] })
const remove = (id) => native('DELETE', `/sandboxes/${id}`)
const boxes = async () => (await json('GET', '/sandboxes')).sandboxes ?? []

const w = await open()
let made = 0
const fresh = () => `b${made++}`
const plain = (transport) => `?class=Plain&transport=${transport}`
async function through(id, transport) {
  const r = await w.call(id, 'exec', { command: 'true' }, plain(transport))
  if (r.exitCode !== 0) throw new Error(`true: ${r.exitCode} ${r.stderr}`)
}

/** Takes turns of several ways to do the same, and prints a row for each. */
async function compare(turns, pause, ways) {
  const taken = ways.map(() => [])
  for (let turn = -1; turn < turns; turn++) { // the first is not counted
    for (const [i, { before, run, after }] of ways.entries()) {
      const thing = await before?.()
      await sleep(pause)
      const began = performance.now()
      await run(thing)
      if (turn >= 0) taken[i].push(performance.now() - began)
      await after?.(thing)
    }
  }
  for (const [i, { name }] of ways.entries()) console.log(JSON.stringify({ name, unit: 'ms', samples: taken[i] }))
}

/** Waits until machines of the pool wait, and have had time to get ready. */
async function pooled() {
  for (let i = 0; i < 1200 && (await json('GET', '/status')).warm < 2; i++) await sleep(50)
}

await through('first', 'http') // makes the image
await w.call('first', 'destroy', {}, plain('http'))

const first = (transport) => ({
  name: `a sandbox's first exec through workerd, ${transport}`, before: async () => { await pooled(); return fresh() },
  run: (id) => through(id, transport), after: (id) => w.call(id, 'destroy', {}, plain(transport)),
})
let id
await compare(15, 1000, [first('http'), first('rpc'),
  { name: '  native create + exec', before: pooled, run: async () => { id = await create(); await exec(id) }, after: () => remove(id) }])

const [known, other] = [fresh(), fresh()]
await through(known, 'http')
const box = (await boxes())[0].id
await through(other, 'rpc')
await compare(60, 50, [
  { name: 'exec through workerd, http', run: () => through(known, 'http') },
  { name: 'exec through workerd, rpc', run: () => through(other, 'rpc') },
  { name: "  workerd's own part", run: () => w.call(known, 'state', {}, plain('http')) },
  { name: '  native exec', run: () => exec(box) },
])
for (const id of [known, other]) await w.call(id, 'destroy', {}, plain('http'))

/** Does a thing many times at once, and prints how long each took. */
async function crowd(name, run, end) {
  await pooled()
  const samples = []
  const all = await Promise.allSettled(Array.from({ length: many }, async () => {
    const began = performance.now()
    const thing = await run()
    samples.push(performance.now() - began)
    return thing
  }))
  const failed = all.filter((r) => r.status === 'rejected')
  if (failed.length) throw new Error(`${name}: ${failed.length} of ${many} failed: ${failed[0].reason}`)
  console.log(JSON.stringify({ name, unit: 'ms', samples }))
  await Promise.all(all.map((r) => end(r.value)))
}
await crowd(`${many} at once, first exec through workerd`, async () => { const id = fresh(); await through(id, 'http'); return id }, (id) => w.call(id, 'destroy', {}, plain('http')))
await crowd('  native create + exec', async () => { const id = await create(); await exec(id); return id }, remove)
await w.close()
