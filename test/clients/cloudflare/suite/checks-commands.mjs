import assert from 'node:assert/strict'
import { isExecResult, parseSSEStream, responseToAsyncIterable, asyncIterableToSSEStream } from '@cloudflare/sandbox'

export async function commands(t) {
  const box = t.box()
  const done = await box.exec('echo out; echo err >&2; false')
  assert(isExecResult(done))
  assert.equal(done.stdout, 'out')
  assert.equal(done.stderr, 'err')
  assert.equal(done.exitCode, 1)
  assert.equal(done.success, false)
  assert.equal(done.command, 'echo out; echo err >&2; false')
  assert(done.duration >= 0 && !Number.isNaN(Date.parse(done.timestamp)))
  assert.equal((await box.exec('pwd; id -un')).stdout, '/workspace\nroot')
  await box.exec('cd /tmp && export WORD=kept && greet() { echo "hi $1"; } && alias')
  assert.equal((await box.exec('pwd; echo $WORD; greet you')).stdout, '/tmp\nkept\nhi you')
  assert.equal((await box.exec('pwd; echo $ONCE', { cwd: '/usr', env: { ONCE: 'x' } })).stdout, '/usr\nx')
  assert.equal((await box.exec('pwd; echo "[$ONCE]"')).stdout, '/tmp\n[]')
  await assert.rejects(box.exec('sleep 30', { timeout: 300 }))
  assert.equal((await box.exec('no-such-program')).exitCode, 127)
  assert.equal((await box.exec('seq 100000 | md5sum')).stdout.slice(0, 32), (await box.exec('seq 1 100000 | md5sum')).stdout.slice(0, 32))
  const many = await box.exec('seq 100000')
  assert.equal(many.stdout.split('\n').length, 100000)
}

export async function streamedCommands(t) {
  const box = t.box()
  const seen = []
  let completed
  const done = await box.exec('echo one; echo two >&2; exit 3', {
    stream: true, onOutput: (stream, data) => seen.push([stream, data]), onComplete: (r) => (completed = r),
  })
  assert.equal(done.exitCode, 3)
  for (let i = 0; i < 300 && !completed; i++) await new Promise((r) => setTimeout(r, 100)) // it comes as a call of its own
  assert.equal(completed.exitCode, 3)
  assert.deepEqual(seen.sort(), [['stderr', 'two\n'], ['stdout', 'one\n']])
  const events = []
  for await (const e of parseSSEStream(await box.execStream('echo a; sleep 0.2; echo b'))) events.push(e)
  assert.equal(events[0].type, 'start')
  assert.equal(events.filter((e) => e.type === 'stdout').map((e) => e.data).join(''), 'a\nb\n')
  assert.equal(events.at(-1).type, 'complete')
  assert.equal(events.at(-1).exitCode, 0)
  const raw = await box.execStream('echo raw')
  const lines = []
  for await (const e of responseToAsyncIterable(new Response(raw, { headers: { 'content-type': 'text/event-stream' } }))) lines.push(e)
  assert(lines.some((e) => e.type === 'stdout' && e.data === 'raw\n'))
  const again = []
  for await (const e of parseSSEStream(asyncIterableToSSEStream((async function* () { yield* lines })()))) again.push(e)
  assert.deepEqual(again, lines)
}

export async function environment(t) {
  const box = t.box()
  await box.setEnvVars({ KEPT: "it's $kept", GONE: 'x' })
  assert.equal((await box.exec('echo "$KEPT|$GONE"')).stdout, "it's $kept|x")
  await box.setEnvVars({ GONE: undefined })
  assert.equal((await box.exec('echo "$KEPT|$GONE"')).stdout, "it's $kept|")
}

export async function aloneCommands(t) {
  const box = t.box({ enableDefaultSession: false })
  await box.exec('cd /tmp; export WORD=x')
  assert.equal((await box.exec('pwd; echo "[$WORD]"')).stdout, '/workspace\n[]')
  const over = await box.exec('sleep 30', { timeout: 300 }).catch((e) => e)
  assert(over instanceof Error || over.exitCode === 124, JSON.stringify(over))
}

export async function placement(t) {
  const box = t.box()
  await box.exec('true')
  assert.equal((await box.getContainerPlacementId()) ?? null, null)
}
