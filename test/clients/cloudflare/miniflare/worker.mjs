// A Worker as users write them: it keeps one sandbox an id, and has handlers for
// what the sandboxes send.
import { Sandbox as Base, ContainerProxy, getSandbox, proxyToSandbox } from '@cloudflare/sandbox'

export { ContainerProxy }

export class Sandbox extends Base {
  sleepAfter = '10m'
  interceptHttps = true
}

Sandbox.outbound = async (request) => {
  const body = request.method === 'POST' ? await request.text() : ''
  return new Response(`caught ${request.method} ${request.url} ${body}`, { headers: { 'x-caught': 'yes' } })
}
Sandbox.outboundByHost = {
  'one.example': async (request, env, ctx) => new Response(`one of ${ctx.className}: ${new URL(request.url).pathname}`),
}

// Plain is a sandbox whose traffic is nobody's business.
export class Plain extends Base {}

const json = (value) => Response.json(value ?? null)

const calls = {
  exec: async (sandbox, a) => sandbox.exec(a.command, a.options),
  timed: async (sandbox, a) => {
    const times = []
    for (let i = 0; i < a.n; i++) {
      const begin = Date.now()
      await sandbox.exec('true')
      times.push(Date.now() - begin)
    }
    return times
  },
  write: async (sandbox, a) => sandbox.writeFile(a.path, a.content),
  read: async (sandbox, a) => sandbox.readFile(a.path),
  start: async (sandbox, a) => {
    const p = await sandbox.startProcess(a.command)
    return { id: p.id, pid: p.pid }
  },
  process: async (sandbox, a) => {
    const p = await sandbox.getProcess(a.id)
    return p && { id: p.id, status: p.status }
  },
  fetch: async (sandbox, a) => {
    const r = await sandbox.containerFetch(new Request(`http://localhost${a.path}`), a.port)
    return { status: r.status, body: await r.text() }
  },
  state: async (sandbox) => sandbox.getState(),
  stop: async (sandbox) => sandbox.stop(),
  destroy: async (sandbox) => sandbox.destroy(),
  deny: async (sandbox, a) => sandbox.setDeniedHosts(a.hosts),
}

export default {
  async fetch(request, env) {
    const preview = await proxyToSandbox(request, env)
    if (preview) return preview
    const url = new URL(request.url)
    const [, id, call] = url.pathname.split('/')
    const sandbox = getSandbox(env[url.searchParams.get('class') ?? 'Sandbox'], id, { transport: url.searchParams.get('transport') ?? 'http' })
    try {
      if (call === 'connect') return await sandbox.wsConnect(request, Number(url.searchParams.get('port')))
      if (!calls[call]) return new Response('no such call', { status: 404 })
      return json(await calls[call](sandbox, request.method === 'POST' ? await request.json() : {}))
    } catch (e) {
      return Response.json({ error: String(e), name: e?.name, code: e?.code, stack: e?.stack }, { status: 500 })
    }
  },
}
