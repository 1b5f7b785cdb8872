// A Worker that holds the package's every public method against what its users rely
// on. Each check is a function of a file checks-*.mjs.
import { Sandbox as Base, ContainerProxy, getSandbox, proxyTerminal, proxyToSandbox } from '@cloudflare/sandbox'
import * as buckets from './checks-buckets.mjs'
import * as code from './checks-code.mjs'
import * as commands from './checks-commands.mjs'
import * as files from './checks-files.mjs'
import * as lifecycle from './checks-lifecycle.mjs'
import * as network from './checks-network.mjs'
import * as processes from './checks-processes.mjs'
import * as sessions from './checks-sessions.mjs'
import * as storage from './checks-storage.mjs'

export { ContainerProxy }

export class Sandbox extends Base {}

// Python is a sandbox of the image's variant with Python.
export class Python extends Base {}

// Stored is a sandbox whose backups are kept by a server of its own.
export class Stored extends Base {
  constructor(ctx, env) {
    super(ctx, {
      ...env, BACKUP_BUCKET: buckets.storeOf(env, 'files'), BACKUP_BUCKET_NAME: 'files', BACKUP_BUCKET_ENDPOINT: env.S3_HTTPS,
      R2_ACCESS_KEY_ID: env.S3_KEY, R2_SECRET_ACCESS_KEY: env.S3_SECRET, CLOUDFLARE_ACCOUNT_ID: 'any',
    })
  }
}

// Caught is a sandbox whose traffic comes here.
export class Caught extends Base {
  interceptHttps = true
}
Caught.outboundByHost = { 'one.example': async (request) => new Response(`one ${request.method} ${new URL(request.url).pathname} ${await request.text()}`) }
Caught.outboundHandlers = { named: async (request, env, ctx) => new Response(`named ${ctx.params?.word} ${new URL(request.url).hostname}`) }
Caught.outbound = async (request) => new Response(`all ${request.url}`)

const { storeOf: _, ...stored } = buckets
const checks = { ...stored, ...code, ...commands, ...files, ...lifecycle, ...network, ...processes, ...sessions, ...storage }

// used holds the methods that checks have called: "Sandbox.exec".
const used = new Set()

// noting is an object whose calls are noted under a name.
export const noting = (name, object) => new Proxy(object, {
  get(target, key) {
    const value = Reflect.get(target, key)
    if (key === 'tunnels') used.add(`${name}.${key}`)
    if (typeof value !== 'function' || typeof key !== 'string' || key === 'tunnels') return value
    return (...args) => {
      used.add(`${name}.${key}`)
      return target[key](...args) // not apply: that would be another call
    }
  },
})

let count = 0

// The check's hands: box gives a sandbox of its own.
function handsOf(env, transport, request) {
  const boxes = []
  return {
    env, transport, noting, request,
    box(options = {}, kind = 'Sandbox', id = `t${Date.now().toString(36)}${(count++).toString(36)}`) {
      const box = noting('Sandbox', getSandbox(env[kind], id, { transport, ...options }))
      boxes.push(box)
      return Object.assign(box, { testId: id })
    },
    end: () => Promise.all(boxes.map((b) => b.destroy().catch(() => {}))),
  }
}

async function run(name, env, transport, request) {
  if (!checks[name]) return Response.json({ error: `no check ${name}` }, { status: 404 })
  const t = handsOf(env, transport, request)
  try {
    const value = await checks[name](t)
    return Response.json({ ok: true, skipped: value === 'skipped', value: value ?? null })
  } catch (e) {
    return Response.json({ ok: false, error: e?.message ?? String(e), name: e?.name, code: e?.code, stack: e?.stack })
  } finally {
    await t.end()
  }
}

export default {
  async fetch(request, env) {
    const preview = await proxyToSandbox(request, env)
    if (preview) return preview
    const url = new URL(request.url)
    const [, what, name] = url.pathname.split('/')
    const transport = url.searchParams.get('transport') ?? 'http'
    const box = () => noting('Sandbox', getSandbox(env.Sandbox, name, { transport }))
    const port = Number(url.searchParams.get('port'))
    switch (what) {
      case 'checks':
        return Response.json(Object.keys(checks))
      case 'used':
        return Response.json([...used])
      case 'check':
        return run(name, env, transport, request)
      case 'exec':
        return Response.json(await box().exec(await request.text()))
      case 'expose':
        return Response.json(await box().exposePort(port, { hostname: url.searchParams.get('hostname'), token: url.searchParams.get('token') ?? undefined }))
      case 'unexpose':
        return Response.json(await box().unexposePort(port) ?? null)
      case 'stop':
        await box().stop()
        return Response.json((await box().getState()).status)
      case 'state':
        return Response.json((await box().getState()).status)
      case 'connect':
        return box().wsConnect(request, port)
      case 'terminal': {
        const session = url.searchParams.get('session')
        if (session === 'proxied') return proxyTerminal(getSandbox(env.Sandbox, name, { transport }), 'proxied', request, { cols: 100, rows: 30 })
        if (session) return noting('ExecutionSession', await box().getSession(session)).terminal(request, { cols: 100, rows: 30 })
        return box().terminal(request, { cols: 100, rows: 30 })
      }
      case 'destroy':
        return Response.json(await box().destroy() ?? null)
    }
    return new Response('no such thing', { status: 404 })
  },
}
