import assert from 'node:assert/strict'

const pause = (ms) => new Promise((r) => setTimeout(r, ms))

async function until(ok, what) {
  for (let i = 0; i < 1200; i++) {
    if (await ok()) return
    await pause(100)
  }
  throw new Error(`never came true: ${what}`)
}

// Word that the container has ended may come while the first call after it is under way:
// the package then says that the call was interrupted, and is to be made again.
async function afterwards(call) {
  for (let i = 0; ; i++) {
    try {
      return await call()
    } catch (e) {
      if (i === 100 || !/OperationInterrupted/.test(`${e.name} ${e.message}`)) throw e
      await pause(100)
    }
  }
}

export async function identity(t) {
  const one = t.box()
  await one.writeFile('/workspace/mark', 'of one')
  const same = t.box({}, 'Sandbox', one.testId)
  assert.equal((await same.readFile('/workspace/mark')).content, 'of one')
  const other = t.box()
  assert.equal((await other.exists('/workspace/mark')).exists, false)
  await one.destroy()
  assert.equal((await afterwards(() => same.exists('/workspace/mark'))).exists, false)
}

export async function settings(t) {
  const box = t.box({ sleepAfter: '5m', labels: { of: 'test' }, containerTimeouts: { portReadyTimeoutMS: 60000 } })
  await box.exec('true')
  assert.equal((await box.getState()).status, 'healthy')
  await box.setSleepAfter('10m')
  await box.setKeepAlive(true)
  await box.setKeepAlive(false)
  await box.setContainerTimeouts({ instanceGetTimeoutMS: 30000 })
  await box.setLabels({ of: 'other' })
  await box.setTransport(t.transport)
  await box.setSandboxName(box.testId)
  await box.renewActivityTimeout()
  assert.equal((await box.exec('echo well')).stdout, 'well')
}

// A sandbox that sleeps keeps its files and its processes.
export async function sleeping(t) {
  const box = t.box({ sleepAfter: '15s' }) // longer than it takes to make it, on a busy machine too
  const p = await box.startProcess('echo on > /workspace/file; for i in $(seq 100000); do echo $i > /tmp/count; sleep 0.1; done', { processId: 'counts' })
  assert(p.pid > 0)
  await until(async () => (await box.getState()).status.startsWith('stopped'), 'it sleeps')
  await pause(12_000) // nobody asks: workerd forgets the object, and removes its container
  assert.equal((await afterwards(() => box.readFile('/workspace/file'))).content, 'on\n')
  const count = async () => Number((await afterwards(() => box.exec('cat /tmp/count'))).stdout)
  const before = await count()
  await until(async () => (await count()) > before, 'its process goes on')
}

// One that is to stay awake does, however short its sleep would come.
export async function awake(t) {
  const box = t.box({ sleepAfter: '2s', keepAlive: true })
  const begun = (await box.exec('echo $$ > /tmp/shell; cat /tmp/shell')).stdout
  await pause(6_000)
  assert.equal((await box.getState()).status, 'healthy')
  assert.equal((await box.exec('cat /tmp/shell; echo $$')).stdout, `${begun}\n${begun}`)
}

export async function stopping(t) {
  const box = t.box({ keepAlive: true })
  await box.exec('echo kept > /workspace/file')
  await box.stop()
  await until(async () => (await box.getState()).status.startsWith('stopped'), 'it stops')
  await box.start()
  assert.equal((await afterwards(() => box.exec('cat /workspace/file'))).stdout, 'kept')
}

export async function crowd(t) {
  const all = await Promise.all(Array.from({ length: 50 }, async (_, i) => (await t.box().exec(`echo ${i}`)).stdout))
  assert.deepEqual(all, all.map((_, i) => `${i}`))
}

export async function badIds(t) {
  for (const id of ['-x', 'x-', 'www', 'x'.repeat(64)]) assert.throws(() => t.box({}, 'Sandbox', id))
}
