// Code in contexts, on every way.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { CodeInterpreter } from '@cloudflare/sandbox'

import { events, leave, refused, ways } from './setup.mjs'

for (const [way, open] of Object.entries(ways)) {
  describe(way, { timeout: 300_000 }, () => {
    let c, code
    before(() => {
      c = open()
      code = new CodeInterpreter(() => c.interpreter)
    })
    after(() => leave(way, c))

    test('a context remembers', async () => {
      const context = await code.createCodeContext({ language: 'python', envVars: { E: 'v' } })
      assert.equal(context.language, 'python')
      assert.equal(context.cwd, '/workspace')
      assert.ok(context.createdAt instanceof Date)
      const heard = []
      const first = await code.runCode('import os, sys\nx = 40\nprint(os.environ["E"])\nprint("err", file=sys.stderr)\nx + 2',
        { context, onStdout: (o) => { heard.push(o.text) } })
      assert.equal(first.logs.stdout.join(''), 'v\n')
      assert.equal(first.logs.stderr.join(''), 'err\n')
      assert.deepEqual(heard, ['v\n'])
      assert.equal(first.results[0].text, '42')
      assert.equal((await code.runCode('x', { context })).results[0].text, '40')
      const bad = await code.runCode('1/0', { context })
      assert.deepEqual([bad.error.name, bad.error.message], ['ZeroDivisionError', 'division by zero'])
      assert.ok(bad.error.traceback.length > 0)
      assert.ok((await code.listCodeContexts()).some((one) => one.id === context.id))
      const all = await events(code.runCodeStream('print(x); x', { context }))
      assert.deepEqual(all.map((e) => e.type), ['stdout', 'result', 'execution_complete'])
      await code.deleteCodeContext(context.id)
      await refused('CONTEXT_NOT_FOUND', () => code.deleteCodeContext(context.id))
      await refused('CONTEXT_NOT_FOUND', () => c.interpreter.runCodeStream(context.id, '1', 'python', {}))
    })

    test('rich results', async () => {
      const shown = await code.runCode(`
import matplotlib.pyplot as plt, pandas as pd
from IPython.display import display
plt.plot([1, 2], [3, 4]); plt.title("t")
plt.show()
display(pd.DataFrame({"a": [1, 2]}))`)
      assert.ifError(shown.error)
      const figure = shown.results.find((r) => r.png)
      assert.ok(figure.png.startsWith('iVBOR'))
      assert.deepEqual([figure.chart.type, figure.chart.title], ['line', 't'])
      assert.ok(shown.results.some((r) => r.html?.includes('<table')))
    })

    test('time is up', async () => {
      const context = await code.createCodeContext({ language: 'python' })
      const errors = []
      await c.interpreter.runCodeStream(context.id, 'import time; time.sleep(100)', 'python', { onError: (e) => { errors.push(e.name) } }, 500)
      assert.equal(errors.length, 1)
      await code.deleteCodeContext(context.id)
    })
  })
}
