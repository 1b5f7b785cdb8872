import { test } from 'node:test'
import assert from 'node:assert/strict'
import { CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } from 'e2b'
import { box, until } from './setup.mjs'

const sbx = await box({ envs: { GLOBAL: 'g', BOTH: 'sandbox' } })

test('output, exit code, environment, folder, user', async () => {
  const r = await sbx.commands.run('echo $GLOBAL $BOTH $E2B_SANDBOX; echo err >&2; pwd; whoami', { envs: { BOTH: 'call' } })
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'g call true\n/home/user\nuser\n', 'err\n'])
  assert.equal((await sbx.commands.run('pwd; whoami', { cwd: '/tmp', user: 'root' })).stdout, '/tmp\nroot\n')
  await assert.rejects(sbx.commands.run('echo out; exit 7'), (e) => e instanceof CommandExitError && e.exitCode === 7 && e.stdout === 'out\n')
})

test('what cannot be started', async () => {
  await assert.rejects(sbx.commands.run('true', { cwd: '/no/such/folder' }), (e) => e instanceof InvalidArgumentError && /does not exist/.test(e.message))
  await assert.rejects(sbx.commands.run('true', { user: 'nobody-here' }), /invalid username/)
})

test('streams as it comes', async () => {
  const lines = []
  const r = await sbx.commands.run('for i in 1 2 3; do echo $i; sleep 0.1; done', { onStdout: (d) => { lines.push(d) } })
  assert.equal(lines.join(''), '1\n2\n3\n')
  assert.equal(r.stdout, '1\n2\n3\n')
  assert.ok(lines.length > 1)
})

test('a megabyte, multi-byte characters whole', async () => {
  const r = await sbx.commands.run(`python3 -c "print('ä€😀' * 120000)"`)
  assert.equal(r.stdout, 'ä€😀'.repeat(120000) + '\n')
})

test('in the background: list, connect, kill', async () => {
  const job = await sbx.commands.run('sleep 300', { background: true, timeoutMs: 0 })
  const found = (await sbx.commands.list()).find((p) => p.pid === job.pid)
  assert.deepEqual([found.cmd, found.args], ['/bin/bash', ['-l', '-c', 'sleep 300']])
  const other = await sbx.commands.connect(job.pid)
  assert.equal(await sbx.commands.kill(job.pid), true)
  await assert.rejects(other.wait(), (e) => e instanceof CommandExitError && e.exitCode !== 0)
  await assert.rejects(job.wait(), CommandExitError)
  assert.equal(await sbx.commands.kill(job.pid), false)
  await assert.rejects(sbx.commands.connect(999999), NotFoundError)
  const own = await sbx.commands.run('cat; exit 3', { background: true, stdin: true, timeoutMs: 0 })
  assert.equal(own.exitCode, undefined)
  await own.sendStdin('typed')
  await own.closeStdin()
  await assert.rejects(own.wait(), (e) => e.exitCode === 3 && e.stdout === 'typed' && e.error === 'exit status 3')
  assert.deepEqual([own.exitCode, own.error, own.stdout], [3, 'exit status 3', 'typed'])
  const last = await sbx.commands.run('sleep 300', { background: true, timeoutMs: 0 })
  assert.equal(await last.kill(), true)
  await assert.rejects(last.wait(), CommandExitError)
})

test('one that is left goes on', async () => {
  const job = await sbx.commands.run('sleep 1; echo done > /tmp/left', { background: true })
  await job.disconnect()
  await until(async () => await sbx.files.exists('/tmp/left'), 'it has ended')
})

test('stdin', async () => {
  const out = []
  const job = await sbx.commands.run('cat', { background: true, stdin: true, onStdout: (d) => { out.push(d) } })
  await sbx.commands.sendStdin(job.pid, 'hello ')
  await sbx.commands.sendStdin(job.pid, 'world')
  await sbx.commands.closeStdin(job.pid)
  await sbx.commands.closeStdin(job.pid)
  assert.equal((await job.wait()).stdout, 'hello world')
})

test('the deadline kills', async () => {
  await assert.rejects(sbx.commands.run('sleep 30 & echo $! > /tmp/child; wait', { timeoutMs: 1_000 }), TimeoutError)
  const child = (await sbx.files.read('/tmp/child')).trim()
  await until(async () => (await sbx.commands.run(`kill -0 ${child} 2>/dev/null && echo there || echo gone`)).stdout === 'gone\n', 'the tree is gone')
})

test('a terminal', async () => {
  let out = ''
  const decode = new TextDecoder()
  const pty = await sbx.pty.create({ cols: 90, rows: 30, envs: { HELLO: 'there' }, onData: (d) => { out += decode.decode(d, { stream: true }) } })
  const type = (text) => sbx.pty.sendInput(pty.pid, new TextEncoder().encode(text))
  await type('stty size; echo $HELLO-$TERM\n')
  await until(() => /30 90\r\n/.test(out) && /there-xterm-256color\r\n/.test(out), 'the terminal answers')
  await sbx.pty.resize(pty.pid, { cols: 100, rows: 40 })
  await type('stty size\n')
  await until(() => /40 100\r\n/.test(out), 'it has the new size')
  let seen = ''
  const again = await sbx.pty.connect(pty.pid, { onData: (d) => { seen += new TextDecoder().decode(d) } })
  await type('echo $HELLO-again\n')
  await until(() => /there-again\r\n/.test(seen), 'who comes back sees what it says')
  await type('exit 5\n')
  await assert.rejects(pty.wait(), (e) => e.exitCode === 5)
  await assert.rejects(again.wait(), (e) => e.exitCode === 5)
  const other = await sbx.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert.equal(await sbx.pty.kill(other.pid), true)
  await assert.rejects(other.wait())
  assert.equal(await sbx.pty.kill(other.pid), false)
})
