import assert from 'node:assert/strict'
import { parseSSEStream } from '@cloudflare/sandbox'

export async function sessions(t) {
  const box = t.box()
  const one = t.noting('ExecutionSession', await box.createSession({ id: 'one', env: { WHO: 'one' }, cwd: '/tmp' }))
  const two = t.noting('ExecutionSession', await box.createSession({ env: { WHO: 'two' } }))
  assert.equal(one.id, 'one')
  assert.match(two.id, /^session-/)
  const [a, b] = await Promise.all([one.exec('pwd; echo $WHO'), two.exec('pwd; echo $WHO')])
  assert.equal(a.stdout, '/tmp\none')
  assert.equal(b.stdout, '/workspace\ntwo')
  await one.exec('cd /usr; V=1')
  assert.equal((await (await box.getSession('one')).exec('pwd; echo $V')).stdout, '/usr\n1')
  assert.equal((await box.exec('echo "[$WHO]"')).stdout, '[]')
  await assert.rejects(box.createSession({ id: 'one' }), (e) => e.code === 'SESSION_ALREADY_EXISTS' || /exists/.test(e.message))
  await one.exec('echo x > /tmp/shared')
  assert.equal((await two.exec('cat /tmp/shared')).stdout, 'x')
  const gone = await box.deleteSession('one')
  assert.equal(gone.success, true)
  assert.equal((await (await box.getSession('one')).exec('pwd; echo "[$WHO]"')).stdout, '/workspace\n[]')
}

export async function endedSessions(t) {
  const box = t.box()
  const s = await box.createSession({ id: 'brief' })
  await assert.rejects(s.exec('exit 7'), (e) => {
    assert(e.name === 'SessionTerminatedError' || e.code === 'SESSION_TERMINATED', `${e.name} ${e.code} ${e.message}`)
    return true
  })
  assert.equal((await s.exec('echo anew')).stdout, 'anew')
}

export async function sessionMethods(t) {
  const box = t.box()
  const s = t.noting('ExecutionSession', await box.createSession({ id: 'all', cwd: '/workspace' }))
  await s.mkdir('d/e', { recursive: true })
  await s.writeFile('d/f', 'text')
  assert.equal((await s.readFile('d/f')).content, 'text')
  assert.equal((await s.exists('d/f')).exists, true)
  await s.renameFile('d/f', 'd/g')
  await s.moveFile('d/g', 'd/e/h')
  assert.deepEqual((await s.listFiles('d/e')).files.map((f) => f.name), ['h'])
  let whole = ''
  for await (const e of parseSSEStream(await s.readFileStream('d/e/h'))) if (e.type === 'chunk') whole += e.data
  assert.equal(whole, 'text')
  await s.deleteFile('d/e/h')
  await s.setEnvVars({ OF: 'session' })
  assert.equal((await s.exec('echo $OF')).stdout, 'session')
  assert.equal((await box.exec('echo "[$OF]"')).stdout, '[]')
  const events = []
  for await (const e of parseSSEStream(await s.execStream('echo $OF'))) events.push(e)
  assert(events.some((e) => e.type === 'stdout' && e.data === 'session\n'))
  const p = await s.startProcess('echo started; sleep 300')
  assert.equal((await s.getProcess(p.id)).id, p.id)
  assert((await s.listProcesses()).some((o) => o.id === p.id))
  await p.waitForLog('started', 60000)
  assert.match((await s.getProcessLogs(p.id)).stdout, /started/)
  for await (const e of parseSSEStream(await s.streamProcessLogs(p.id))) if (e.type === 'stdout') break
  await s.killProcess(p.id)
  await s.startProcess('sleep 300')
  assert((await s.killAllProcesses()) >= 1)
  assert.equal(await s.cleanupCompletedProcesses(), 0)
  assert.equal((await s.checkChanges('/workspace')).success, true)
  const watched = await s.watch('/workspace/d')
  const seeing = (async () => {
    for await (const e of parseSSEStream(watched)) if (e.type === 'event' && e.path.endsWith('seen')) return
  })()
  await s.writeFile('/workspace/d/seen', 'x')
  await seeing
}
