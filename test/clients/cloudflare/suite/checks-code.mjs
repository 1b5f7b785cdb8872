import assert from 'node:assert/strict'
import { parseSSEStream } from '@cloudflare/sandbox'

export async function code(t) {
  const box = t.box({}, 'Python')
  const context = await box.createCodeContext({ language: 'python' })
  assert.equal(context.language, 'python')
  await box.runCode('kept = 41', { context })
  const heard = []
  const result = await box.runCode('print("said")\nkept + 1', { context, onStdout: (o) => heard.push(o.text) })
  assert.equal(result.logs.stdout.join(''), 'said\n')
  assert.equal(result.results[0]?.text, '42')
  for (let i = 0; i < 300 && !heard.length; i++) await new Promise((r) => setTimeout(r, 100)) // it comes as a call of its own
  assert.equal(heard.join(''), 'said\n')
  const bad = await box.runCode('raise ValueError("no")', { context })
  assert.equal(bad.error.name, 'ValueError')
  const rich = await box.runCode('import matplotlib.pyplot as p; p.plot([1, 2]); p.show()', { context })
  assert(rich.results.some((r) => r.png), JSON.stringify(rich).slice(0, 500))
  const events = []
  for await (const e of parseSSEStream(await box.runCodeStream('print(1)', { context }))) events.push(e.type)
  assert(events.includes('stdout') && events.includes('execution_complete'), `${events}`)
  assert((await box.listCodeContexts()).some((c) => c.id === context.id))
  await box.deleteCodeContext(context.id)
  assert(!(await box.listCodeContexts()).some((c) => c.id === context.id))
  await assert.rejects(box.deleteCodeContext('none-such'), (e) => /ContextNotFound|not found/i.test(`${e.name} ${e.message}`))
}

export async function otherCode(t) {
  const box = t.box()
  await assert.rejects(box.createCodeContext({ language: 'python' }), /Python interpreter not available.*-python/)
  const s = t.noting('ExecutionSession', await box.createSession({ id: 'c' }))
  const own = await s.createCodeContext({ language: 'javascript' })
  await s.runCode('var kept = 1', { context: own })
  assert.equal((await s.runCode('kept + 1', { context: own })).results[0]?.text, '2')
  assert((await s.listCodeContexts()).some((c) => c.id === own.id))
  const read = await s.runCode("const fs = require('fs')\nfs.readFileSync('/etc/hostname', 'utf8').length > 0", { context: own })
  assert.equal(read.results[0]?.text, 'true', JSON.stringify(read.error))
  await (await s.runCodeStream('1', { context: own })).cancel()
  await s.deleteCodeContext(own.id)
  await box.writeFile('/tmp/x.ts', 'const n: number = 6\nconsole.log(n * 7, typeof Bun.serve)')
  assert.equal((await box.exec('bun run /tmp/x.ts')).stdout, '42 function')
  const typed = await box.runCode('const n: number = 3\nn * 2', { language: 'typescript' })
  assert.equal(typed.error, undefined, JSON.stringify(typed.error))
}
