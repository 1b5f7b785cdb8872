import { test, after } from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Sandbox, Template } from 'e2b'

const cli = fileURLToPath(new URL('node_modules/@e2b/cli/dist/index.js', import.meta.url))
const home = mkdtempSync(join(tmpdir(), 'cli-'))
process.on('exit', () => rmSync(home, { recursive: true, force: true }))

/** Runs the command line as it is published; the code of a failure comes back too. */
const e2b = (...args) => piped('', ...args)

/** The same with input. */
const piped = (input, ...args) => new Promise((done) => {
  const child = execFile(process.execPath, [cli, ...args], { cwd: home, env: { ...process.env, HOME: home, NO_COLOR: '1' }, timeout: 120_000, killSignal: 'SIGKILL' },
    (error, stdout, stderr) => done({ code: error ? error.code : 0, stdout, stderr }))
  child.stdin.end(input) // exec passes it on
})

let id = ''
after(() => id && Sandbox.kill(id).catch(() => false))

test('the life of a sandbox', async () => {
  const made = await e2b('sandbox', 'create', 'base', '--detach', '--timeout', '1200')
  assert.equal(made.code, 0, made.stderr)
  id = /\b[a-z][a-z0-9]{19}\b/.exec(made.stdout + made.stderr)[0]
  assert.deepEqual(await e2b('sandbox', 'exec', id, 'echo', 'hello'), { code: 0, stdout: 'hello\n', stderr: '' })
  const [failed, counted] = await Promise.all([e2b('sandbox', 'exec', id, '--', 'sh', '-c', 'exit 3'), piped(Buffer.alloc(65537, 'a'), 'sandbox', 'exec', id, '--', 'wc', '-c')])
  assert.deepEqual([failed.code, counted.stdout], [3, '65537\n'])
  const snapshot = /snapshot (\S+) from/.exec((await e2b('sandbox', 'snapshot', 'create', id)).stdout)[1]
  const [kept, listed, info, logs, metrics] = await Promise.all([e2b('sandbox', 'snapshot', 'list', id, '--format', 'json'), e2b('sandbox', 'list', '--format', 'json'), e2b('sandbox', 'info', id, '--format', 'json'),
    e2b('sandbox', 'logs', id, '--format', 'json'), e2b('sandbox', 'metrics', id, '--format', 'json')])
  assert.ok(JSON.parse(listed.stdout).some((s) => s.sandboxId === id))
  assert.equal(JSON.parse(info.stdout).state, 'running')
  assert.match(logs.stdout, /sandbox is running/)
  assert.match(metrics.stdout, /memTotal|mem/i)
  assert.match((await e2b('sandbox', 'pause', id)).stdout, /has been paused/)
  assert.match((await e2b('sandbox', 'resume', id)).stdout, /has been resumed/)
  assert.deepEqual(JSON.parse(kept.stdout).map((s) => s.snapshotId), [snapshot])
  const [dropped, killed] = await Promise.all([e2b('sandbox', 'snapshot', 'delete', snapshot), e2b('sandbox', 'kill', id)])
  assert.equal(dropped.code, 0, dropped.stderr)
  assert.match(killed.stdout, /has been killed/)
})

test('templates', async () => {
  const tag = 'cli-' + Date.now()
  await Template.assignTags('base', [tag])
  const [listed, published, hidden] = await Promise.all([e2b('template', 'list', '--format', 'json'), e2b('template', 'publish', 'base', '-y'), e2b('template', 'unpublish', 'base', '-y')])
  assert.ok(JSON.parse(listed.stdout).some((t) => t.templateID === 'base' && t.names.includes('base:' + tag)))
  assert.match(published.stdout, /Published as/)
  assert.match(hidden.stdout + hidden.stderr, /all of its accounts/)
  assert.equal((await e2b('template', 'delete', 'base:' + tag, '-y')).code, 0)
  assert.equal(await Template.exists('base:' + tag), false)
})
