// A Worker as users write them: it keeps one sandbox an id, and has handlers for
// what the sandboxes send.
import { DurableObject } from 'cloudflare:workers'
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

// Bare is a container without the package, as workerd itself has it.
export class Bare extends DurableObject {
  // begin starts the container anew, with folders that were kept of others.
  async begin(folders = []) {
    const { container } = this.ctx
    if (container.running) await container.destroy()
    container.start({ enableInternet: true, directorySnapshots: folders })
    const end = Date.now() + 60_000
    for (;;) {
      try {
        return void await container.getTcpPort(3000).fetch('http://container/')
      } catch (e) {
        if (Date.now() > end) throw e
        await new Promise((r) => setTimeout(r, 100))
      }
    }
  }
  async run(command) {
    const r = await this.ctx.container.getTcpPort(3000).fetch('http://container/api/execute', { method: 'POST', body: JSON.stringify({ command }) })
    return (await r.json()).stdout
  }
  // folders keeps one, and gives it to other containers.
  async folders() {
    await this.begin()
    const seen = [await this.run('mkdir -p kept && cd kept && echo one > file && ln -s file link && chmod 640 file && echo made')]
    const snapshot = await this.ctx.container.snapshotDirectory({ dir: '/workspace/kept' })
    await this.run('echo other > kept/file')
    for (let i = 0; i < 2; i++) {
      await this.begin([{ snapshot, mountPoint: '/workspace/again' }])
      seen.push(await this.run('cat again/link; stat -c %a again/file; ls; echo changed > again/file'))
    }
    await this.ctx.container.destroy()
    return seen
  }
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
    if (call === 'folders') return json(await env.Bare.get(env.Bare.idFromName(id)).folders())
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
