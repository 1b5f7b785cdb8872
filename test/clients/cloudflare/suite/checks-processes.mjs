import assert from 'node:assert/strict'
import { isProcess, isProcessStatus, parseSSEStream } from '@cloudflare/sandbox'

const server = (port) => `node -e "require('http').createServer((q,s)=>{s.statusCode=q.url=='/ready'?200:503;s.end('ok')}).listen(${port},()=>console.log('listening on',${port}))"`

export async function processes(t) {
  const box = t.box()
  const p = t.noting('Process', await box.startProcess('echo begun; sleep 0.3; echo err >&2; sleep 300', { processId: 'mine', env: { A: 'b' } }))
  assert(isProcess(p))
  assert.equal(p.id, 'mine')
  assert(p.pid > 0)
  assert(isProcessStatus(await p.getStatus()))
  const line = await p.waitForLog('begun', 60000)
  assert.match(line.line, /begun/)
  assert.match((await p.waitForLog(/e(r+)/, 60000)).match?.[0] ?? '', /err/)
  const logs = await p.getLogs()
  assert.equal(logs.stdout, 'begun\n')
  assert.match((await box.getProcessLogs('mine')).stderr, /err/)
  const found = await box.getProcess('mine')
  assert.equal(found.status, 'running')
  assert((await box.listProcesses()).some((o) => o.id === 'mine'))
  await p.kill()
  const end = await p.waitForExit(60000)
  assert(end.exitCode !== 0)
  assert.equal(await box.getProcess('none-such'), null)
  assert.equal(await box.cleanupCompletedProcesses(), 0)
}

export async function endedProcesses(t) {
  const box = t.box()
  const p = await box.startProcess('echo done; exit 4')
  assert.equal((await p.waitForExit(60000)).exitCode, 4)
  const after = await box.getProcess(p.id)
  assert.equal(after.exitCode, 4)
  assert.equal(after.status, 'failed')
  const events = []
  for await (const e of parseSSEStream(await box.streamProcessLogs(p.id))) events.push(e)
  assert.equal(events.filter((e) => e.type === 'stdout').map((e) => e.data).join(''), 'done\n')
  assert.equal(events.at(-1).type, 'exit')
  assert.equal(events.at(-1).exitCode, 4)
  await box.startProcess('sleep 300')
  await box.startProcess('sleep 300')
  assert((await box.killAllProcesses()) >= 2)
  const q = await box.startProcess('sleep 300 & sleep 301', { processId: 'tree' })
  await box.killProcess('tree')
  await q.waitForExit(60000)
  const rest = await box.exec('for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline; echo; done | grep -c "^sleep 30[01]"')
  assert.equal(rest.stdout, '0')
}

export async function readiness(t) {
  const box = t.box()
  const p = t.noting('Process', await box.startProcess(server(8123)))
  await p.waitForPort(8123, { mode: 'tcp', timeout: 60000 })
  await p.waitForPort(8123, { path: '/ready', timeout: 60000 })
  await assert.rejects(p.waitForPort(8123, { path: '/', timeout: 1500, status: 200 }), (e) => /ready|timeout|time/i.test(`${e.name} ${e.message}`))
  await assert.rejects(p.waitForLog('never said', 1000), (e) => e.code === 'PROCESS_READY_TIMEOUT' || /Timeout|timed out/i.test(`${e.name} ${e.message}`))
  const brief = await box.startProcess('echo x; exit 2')
  await assert.rejects(brief.waitForLog('never said', 60000), (e) => /exit/i.test(`${e.name} ${e.message}`))
  const other = await box.startProcess('exit 3')
  await assert.rejects(other.waitForPort(8999, { timeout: 60000 }), (e) => /exit/i.test(`${e.name} ${e.message}`))
  const r = await box.containerFetch(new Request('http://localhost/ready'), 8123)
  assert.equal(r.status, 200)
  assert.equal(await r.text(), 'ok')
  await assert.rejects(box.killProcess('none-such'))
}
