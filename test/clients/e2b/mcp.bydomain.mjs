import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { Sandbox, Template } from 'e2b'
import { until } from './setup.mjs'

const own = { 'github/acme/notes': { installCmd: 'test -f server.mjs && echo hello >greeting', runCmd: 'GREETING=$(cat greeting) node server.mjs', envs: { NODE_NO_WARNINGS: '1' } } }
const made = []
let sbx, name

// The repository lies in a snapshot: what is cloned from the public host comes from there.
before(async () => {
  const first = await Sandbox.create('mcp-gateway', { timeoutMs: 600_000 })
  made.push(first)
  await first.files.write('/srv/acme/notes/server.mjs', await readFile('notes.server.mjs', 'utf8'), { user: 'root' })
  await first.commands.run(
    'cd /srv/acme/notes && git init -q && git add . && git -c user.name=t -c user.email=t@t commit -qm first && ' +
      'git config --system url.file:///srv/.insteadOf https://github.com/ && git config --system safe.directory "*"',
    { user: 'root' },
  )
  name = (await first.createSnapshot()).snapshotId
  sbx = await Sandbox.create(name, { timeoutMs: 600_000, mcp: { filesystem: { paths: ['/home/user'] }, ...own } })
  made.push(sbx)
})

after(async () => {
  await Promise.all(made.map((s) => s.kill().catch(() => false)))
})

async function connect(sandbox, token) {
  const client = new Client({ name: 'test', version: '1' })
  const headers = { Authorization: `Bearer ${token ?? (await sandbox.getMcpToken())}` }
  await client.connect(new StreamableHTTPClientTransport(new URL(sandbox.getMcpUrl()), { requestInit: { headers } }))
  return client
}

const said = async (client, name, args = {}) => (await client.callTool({ name, arguments: args })).content[0].text

test('one gateway has the tools of a known server and of an own one', async () => {
  const client = await connect(sbx)
  const { tools } = await client.listTools()
  const names = tools.map((t) => t.name)
  for (const wanted of ['write_file', 'list_directory', 'note', 'die']) assert.ok(names.includes(wanted), `${wanted} of ${names}`)
  assert.equal(tools.find((t) => t.name === 'write_file').inputSchema.required.join(), 'path,content')
  await said(client, 'write_file', { path: '/home/user/told.txt', content: 'by a tool' })
  assert.equal(await sbx.files.read('/home/user/told.txt'), 'by a tool')
  assert.equal((await sbx.files.getInfo('/home/user/told.txt')).owner, 'user')
  assert.match(await said(client, 'list_directory', { path: '/etc' }), /Access denied/)
  assert.match(await said(client, 'note'), /^hello \d+$/)
  await assert.rejects(client.callTool({ name: 'none', arguments: {} }))
  await client.close()
})

test('nobody comes in without the token, which is root\'s', async () => {
  await assert.rejects(connect(sbx, 'another'))
  const answer = await fetch(sbx.getMcpUrl(), { method: 'POST', body: '{}' })
  assert.equal(answer.status, 401)
  await assert.rejects(sbx.commands.run('cat /etc/mcp-gateway/.token'), (e) => /Permission denied/.test(e.stderr))
  assert.equal((await sbx.commands.run('sudo sh -c "cat /proc/[0-9]*/environ" | tr "\\0" "\\n" | grep -c GATEWAY_ACCESS_TOKEN || true')).stdout, '0\n')
  const other = await Sandbox.connect(sbx.sandboxId)
  assert.equal(await other.getMcpToken(), await sbx.getMcpToken())
})

test('a server that ends is started again', async () => {
  const client = await connect(sbx)
  await assert.rejects(client.callTool({ name: 'die', arguments: {} }))
  let first
  await until(async () => (first = await said(client, 'note').catch(() => undefined)), 'it answers again')
  assert.equal(first, 'hello 1')
  assert.match((await sbx.commands.run('sudo cat /var/log/mcp-gateway/gateway.log')).stdout, /github\/acme\/notes: it ended: exit status 3/)
  await client.close()
})

test('sessions outlive a pause, and a fork has the servers as they were', async () => {
  const client = await connect(sbx)
  const count = Number((await said(client, 'note')).split(' ')[1])
  await sbx.pause()
  const again = await Sandbox.connect(sbx.sandboxId)
  assert.equal(await said(client, 'note'), `hello ${count + 1}`)
  const [child] = (await again.fork({ count: 1 })).map((c) => c.sandbox ?? c)
  made.push(child)
  const there = await connect(child)
  assert.equal(await said(there, 'note'), `hello ${count + 2}`)
  assert.equal(await said(client, 'note'), `hello ${count + 2}`)
  await Promise.all([there.close(), client.close()])
})

test('what cannot be started is no sandbox', async () => {
  const metadata = { gateway: String(Date.now()) }
  for (const [mcp, why] of [
    [{ teapot: {} }, /Failed to start MCP gateway.*"teapot" is not in this gateway's catalogue/s],
    [{ exa: {} }, /server exa: apiKey is missing/],
    [{ 'github/acme/none': { runCmd: 'true' } }, /server github\/acme\/none: install it: git/],
    [{ 'github/acme/notes': { runCmd: 'echo no key >&2; exit 4' } }, /server github\/acme\/notes: it ended: exit status 4: no key/],
  ])
    await assert.rejects(Sandbox.create(name, { metadata, mcp }), why)
  assert.deepEqual(await Sandbox.list({ query: { metadata } }).nextItems(), [])
})

test('a step of a template installs servers', async () => {
  const step = Template().fromTemplate('mcp-gateway').addMcpServer(['filesystem', 'memory'])
  const line = /mcp-gateway pull filesystem memory/.exec(await Template.toJSON(step))
  assert.ok(line)
  await sbx.commands.run(line[0], { user: 'root' })
  await assert.rejects(sbx.commands.run('mcp-gateway pull teapot', { user: 'root' }), (e) => /"teapot" is not in this gateway's catalogue/.test(e.stderr))
  await assert.rejects(sbx.commands.run('mcp-gateway pull memory'), (e) => /run as root/.test(e.stderr))
})
