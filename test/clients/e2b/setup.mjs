import { after } from 'node:test'
import { Sandbox } from 'e2b'

const made = []

/** A sandbox for a test, killed at its end. */
export async function box(options = {}, template = 'base') {
  const sandbox = await Sandbox.create(template, { timeoutMs: 300_000, ...options })
  made.push(sandbox)
  return sandbox
}

after(async () => {
  await Promise.all(made.map((s) => s.kill().catch(() => false)))
})

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

/** Waits until ok, for five minutes at most. */
export async function until(ok, what) {
  for (let i = 0; i < 3000; i++) {
    if (await ok()) return
    await sleep(100)
  }
  throw new Error(`never came true: ${what}`)
}
