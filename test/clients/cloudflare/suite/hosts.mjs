// The two ways of running the Worker on one's own machine: miniflare in this process,
// and wrangler dev as users start it. Each gives the Worker's URL and its end.
import { spawn } from 'node:child_process'
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'esbuild'
import { Miniflare, convertV4MiniflareOptions } from 'miniflare'

const here = import.meta.dirname
const container = { imageName: 'docker.io/cloudflare/sandbox:0.12.10' }
const python = { imageName: 'docker.io/cloudflare/sandbox:0.12.10-python' }

export async function miniflare() {
  const kept = await mkdtemp(join(tmpdir(), 'suite-'))
  const made = await build({
    entryPoints: [join(here, 'worker.mjs')], bundle: true, write: false, format: 'esm', target: 'esnext',
    conditions: ['workerd', 'worker', 'browser'], external: ['cloudflare:*', 'node:*'], logLevel: 'error',
  })
  const mf = new Miniflare(convertV4MiniflareOptions({
    name: 'suite', modules: [{ type: 'ESModule', path: 'worker.mjs', contents: made.outputFiles[0].text }],
    compatibilityDate: '2026-07-01', compatibilityFlags: ['nodejs_compat'],
    durableObjects: { Sandbox: { className: 'Sandbox', useSQLite: true, container }, Caught: { className: 'Caught', useSQLite: true, container }, Python: { className: 'Python', useSQLite: true, container: python }, Stored: { className: 'Stored', useSQLite: true, container } },
    durableObjectsPersist: kept, r2Persist: kept, r2Buckets: ['BACKUP_BUCKET', 'FILES'],
    bindings: Object.fromEntries(['S3_HTTP', 'S3_HTTPS', 'S3_CA', 'S3_KEY', 'S3_SECRET'].map((name) => [name, process.env[name] ?? ''])),
    containerEngine: `unix://${process.env.BERTH_DOCKER_SOCKET}`,
  }))
  return { url: await mf.ready, async close() { await mf.dispose(); await rm(kept, { recursive: true, force: true }) } }
}

// What a user's project holds. The image is built when wrangler starts.
const config = {
  name: 'suite', main: 'worker.mjs', compatibility_date: '2026-07-01', compatibility_flags: ['nodejs_compat'],
  containers: ['Sandbox', 'Caught', 'Python'].map((class_name) => ({ class_name, image: './Dockerfile' })),
  durable_objects: { bindings: ['Sandbox', 'Caught', 'Python'].map((name) => ({ name, class_name: name })) },
  migrations: [{ tag: 'v1', new_sqlite_classes: ['Sandbox', 'Caught', 'Python'] }],
  r2_buckets: ['BACKUP_BUCKET', 'FILES'].map((binding) => ({ binding, bucket_name: binding.toLowerCase().replace('_', '-') })),
}

export async function wrangler() {
  const dir = await mkdtemp(join(tmpdir(), 'wrangler-'))
  await cp(here, dir, { recursive: true, filter: (path) => !path.includes('node_modules') })
  await symlink(join(here, 'node_modules'), join(dir, 'node_modules'))
  await writeFile(join(dir, 'wrangler.json'), JSON.stringify(config))
  await writeFile(join(dir, 'Dockerfile'), 'FROM docker.io/cloudflare/sandbox:0.12.10\nENV OF_DOCKERFILE="set there"\nEXPOSE 8300\n')
  const port = await freePort()
  const child = spawn(process.execPath, ['node_modules/wrangler/bin/wrangler.js', 'dev', '--port', `${port}`, '--ip', '127.0.0.1', '--show-interactive-dev-session=false'], {
    cwd: dir, stdio: ['ignore', 'pipe', 'pipe'], detached: true,
    env: { ...process.env, WRANGLER_SEND_METRICS: 'false', CI: '1', WRANGLER_DOCKER_HOST: `unix://${process.env.BERTH_DOCKER_SOCKET}`, HOME: dir },
  })
  const said = []
  child.stdout.on('data', (b) => said.push(b))
  child.stderr.on('data', (b) => said.push(b))
  const over = new Promise((done) => child.once('exit', done))
  const close = async () => {
    if (child.exitCode === null) process.kill(-child.pid, 'SIGTERM')
    await over
    await rm(dir, { recursive: true, force: true })
  }
  const url = new URL(`http://127.0.0.1:${port}/`)
  for (let i = 0; i < 3000 && child.exitCode === null; i++) {
    const answer = await fetch(new URL('/used', url)).catch(() => null)
    if (answer?.ok) return { url, close }
    await new Promise((r) => setTimeout(r, 100))
  }
  await close()
  throw new Error(`wrangler dev does not answer:\n${Buffer.concat(said)}`)
}

async function freePort() {
  const s = createServer()
  await new Promise((done) => s.listen(0, '127.0.0.1', done))
  const { port } = s.address()
  await new Promise((done) => s.close(done))
  return port
}
