// Runs the Worker in workerd, against the Docker Engine's socket of a server.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'esbuild'
import { Miniflare } from 'miniflare'

const here = import.meta.dirname ?? new URL('.', import.meta.url).pathname

async function bundle() {
  const made = await build({
    entryPoints: [join(here, 'worker.mjs')], bundle: true, write: false, format: 'esm', target: 'esnext',
    conditions: ['workerd', 'worker', 'browser'], external: ['cloudflare:*', 'node:*'], logLevel: 'error',
  })
  return made.outputFiles[0].text
}

// open starts workerd; close ends it. Its state is kept in dir, if one is given.
export async function open({ image = 'docker.io/cloudflare/sandbox:0.12.10', dir } = {}) {
  const persist = dir ?? (await mkdtemp(join(tmpdir(), 'miniflare-')))
  const mf = new Miniflare({
    name: 'suite', modules: [{ type: 'ESModule', path: 'worker.mjs', contents: await bundle() }],
    compatibilityDate: '2026-07-01', compatibilityFlags: ['nodejs_compat'],
    durableObjects: { Sandbox: { className: 'Sandbox', useSQLite: true, container: { imageName: image } } },
    durableObjectsPersist: persist,
    containerEngine: `unix://${process.env.BERTH_DOCKER_SOCKET}`,
  })
  const url = await mf.ready
  const call = async (id, name, args = {}, transport) => {
    const r = await mf.dispatchFetch(new URL(`/${id}/${name}${transport ? `?transport=${transport}` : ''}`, url), { method: 'POST', body: JSON.stringify(args) })
    const value = await r.json()
    if (r.status !== 200) throw Object.assign(new Error(value.error), value)
    return value
  }
  const close = async () => {
    await mf.dispose()
    if (!dir) await rm(persist, { recursive: true, force: true })
  }
  return { mf, url, call, close }
}
