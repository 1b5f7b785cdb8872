import { test, after } from 'node:test'
import assert from 'node:assert/strict'
import { Sandbox, NotFoundError, SandboxError, TimeoutError } from '@e2b/code-interpreter'
import { until } from './setup.mjs'

const sbx = await Sandbox.create({ timeoutMs: 300_000, envs: { GIVEN: 'to all' } })
after(() => sbx.kill().catch(() => false))

// What fails at once leaves the client's own timer behind, which keeps Node waiting.
const untimed = { requestTimeoutMs: 0 }

test('what ran is remembered', async () => {
  await sbx.runCode('x = 41')
  const run = await sbx.runCode('x + 1')
  assert.deepEqual([run.text, run.results.length, run.results[0].isMainResult, run.error], ['42', 1, true, undefined])
  assert.ok(run.executionCount >= 2)
  assert.equal((await sbx.runCode("'quotes are off'")).text, 'quotes are off')
  assert.equal((await sbx.runCode('import os; os.getcwd(), os.environ["GIVEN"], os.environ["E2B_SANDBOX"]')).text, "('/home/user', 'to all', 'true')")
})

test('output as it comes', async () => {
  const out = [], err = []
  const run = await sbx.runCode('import sys, time\nfor i in range(3):\n  print("ä€😀", i, flush=True); time.sleep(0.2)\nprint("oops", file=sys.stderr)', {
    onStdout: (m) => { out.push(m) }, onStderr: (m) => { err.push(m.line) } })
  assert.equal(run.logs.stdout.join(''), 'ä€😀 0\nä€😀 1\nä€😀 2\n')
  assert.ok(out.length > 1 && out.every((m) => !m.error && m.timestamp > 0))
  assert.deepEqual([err.join(''), run.logs.stderr.join('')], ['oops\n', 'oops\n'])
  assert.deepEqual(JSON.parse(JSON.stringify(run)).logs, run.logs)
})

test('errors', async () => {
  const seen = []
  const run = await sbx.runCode('def f():\n  raise ValueError("no good")\nf()', { onError: (e) => { seen.push(e.name) } })
  assert.deepEqual([run.error.name, run.error.value, seen], ['ValueError', 'no good', ['ValueError']])
  assert.match(run.error.traceback, /ValueError[^]*no good/)
  assert.equal((await sbx.runCode('1/0')).error.name, 'ZeroDivisionError')
  assert.equal((await sbx.runCode('2+2')).text, '4')
})

test('results of every kind', async () => {
  const run = await sbx.runCode(`
from IPython.display import *
display(HTML('<b>h</b>')); display(Markdown('*m*')); display(SVG('<svg xmlns="http://www.w3.org/2000/svg"></svg>'))
display(Latex('$x$')); display(JSON({'a': 1})); display(Javascript('1'))
display({'application/pdf': 'cGRm', 'image/jpeg': 'anBn', 'text/plain': 'p'}, raw=True)
display({'application/x-own': 'own', 'text/plain': 'p'}, raw=True)
import pandas as pd
pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})`)
  assert.equal(run.error, undefined)
  const of = (format) => run.results.find((r) => r[format] !== undefined)?.[format]
  assert.deepEqual([of('html'), of('markdown'), of('latex'), of('pdf'), of('jpeg')], ['<b>h</b>', '*m*', '$x$', 'cGRm', 'anBn'])
  assert.match(of('svg'), /svg/)
  assert.deepEqual(of('json'), { a: 1 })
  assert.equal(of('javascript'), '1')
  const frame = run.results.at(-1)
  assert.ok(frame.isMainResult && frame.html.includes('<table') && frame.formats().includes('data'))
  assert.deepEqual(frame.data, { a: [1, 2], b: ['x', 'y'] })
  assert.equal(frame.toJSON().text, frame.text)
})

test('figures are images and charts', async () => {
  const results = []
  const run = await sbx.runCode(`
import matplotlib.pyplot as plt
plt.figure(); plt.plot([1, 2, 3], [4, 5, 6], label='line'); plt.title('A'); plt.xlabel('x (s)'); plt.ylabel('y'); plt.show()
plt.figure(); plt.bar(['p', 'q'], [1, 2]); plt.title('B'); plt.show()
plt.figure(); plt.scatter([1, 2], [3, 4]); plt.show()
plt.figure(); plt.pie([1, 3], labels=['u', 'v']); plt.show()
plt.figure(); plt.boxplot([[1, 2, 3, 10]]); plt.show()
fig, (l, r) = plt.subplots(1, 2); l.plot([1, 2], [3, 4]); r.bar(['a'], [1]); plt.show()`, { onResult: (r) => { results.push(r) }, timeoutMs: 120_000 })
  assert.equal(run.error, undefined)
  assert.deepEqual(run.results.map((r) => r.chart?.type), ['line', 'bar', 'scatter', 'pie', 'box_and_whisker', 'superchart'])
  assert.equal(results.length, 6)
  assert.ok(run.results.every((r) => Buffer.from(r.png, 'base64').subarray(1, 4).toString() === 'PNG'))
  const [line, bar] = run.results.map((r) => r.chart)
  assert.deepEqual([line.title, line.x_label, line.x_unit, line.elements[0].label, line.elements[0].points], ['A', 'x (s)', 's', 'line', [[1, 4], [2, 5], [3, 6]]])
  assert.deepEqual(bar.elements.map((e) => [e.label, Number(e.value)]), [['p', 1], ['q', 2]])
  assert.equal(run.results[5].chart.elements.length, 2)
})

test('contexts', async () => {
  const before = await sbx.listCodeContexts()
  assert.ok(['python', 'javascript'].every((l) => before.some((c) => c.language === l)))
  const one = await sbx.createCodeContext({ cwd: '/tmp' })
  assert.deepEqual([one.language, one.cwd], ['python', '/tmp'])
  const root = await sbx.createCodeContext({ cwd: '/root', language: 'python' })
  assert.equal((await sbx.runCode('import os; os.getcwd()', { context: root })).text, '/root')
  assert.deepEqual((await sbx.listCodeContexts()).at(-1), root)
  await sbx.runCode('x = "of one"', { context: one })
  assert.equal((await sbx.runCode('x', { context: one })).text, 'of one')
  assert.equal((await sbx.runCode('x')).text, '41')
  assert.ok((await sbx.listCodeContexts()).some((c) => c.id === one.id))
  await sbx.restartCodeContext(one)
  assert.equal((await sbx.runCode('x', { context: one })).error.name, 'NameError')
  await sbx.removeCodeContext(one.id)
  await assert.rejects(sbx.runCode('1', { context: one, ...untimed }), NotFoundError)
  await assert.rejects(sbx.restartCodeContext('nosuch'), (e) => e instanceof NotFoundError && /Context nosuch not found/.test(e.message))
})

test('languages', async () => {
  assert.equal((await sbx.runCode('const n = 6; n * 7', { language: 'js' })).text, '42')
  assert.equal((await sbx.runCode('const s: string = "typed"; s', { language: 'typescript' })).text, 'typed')
  assert.equal((await sbx.runCode('echo $((6*7))', { language: 'bash' })).logs.stdout.join('').trim(), '42')
  assert.equal((await sbx.runCode('no-such-program', { language: 'bash' })).error.value, '127')
  assert.equal((await sbx.runCode('getwd()', { language: 'r' })).results[0].text.trim(), '[1] "/home/user"')
  assert.equal((await sbx.runCode('Deno.cwd()', { language: 'deno' })).text, '/home/user')
  await assert.rejects(sbx.runCode('1', { language: 'cobol', ...untimed }), SandboxError)
})

test('variables of one run', async () => {
  const code = 'import os; os.environ.get("ONCE")'
  assert.equal((await sbx.runCode(code, { envs: { ONCE: 'now' } })).text, 'now')
  assert.equal((await sbx.runCode(code)).text, undefined)
})

test('a run that takes too long is left and interrupted', async () => {
  await assert.rejects(sbx.runCode('import time\nwhile True: time.sleep(0.1)', { timeoutMs: 500 }), TimeoutError)
  assert.equal((await sbx.runCode('x')).text, '41')
})

test('what was loaded goes on after a pause and in forks', async () => {
  await sbx.runCode('import pandas as pd; df = pd.DataFrame({"n": range(1000)})')
  await sbx.pause()
  await sbx.connect()
  assert.equal((await sbx.runCode('int(df.n.sum())')).text, '499500')
  const [child] = (await sbx.fork({ count: 1 })).map((c) => c.sandbox ?? c)
  try {
    assert.equal((await child.runCode('df.n *= 2; int(df.n.sum())')).text, '999000')
    assert.equal((await sbx.runCode('int(df.n.sum())')).text, '499500')
  } finally {
    await child.kill()
  }
})

test('a run ends with its sandbox', async () => {
  const other = await Sandbox.create({ timeoutMs: 120_000 })
  let began = false
  const run = other.runCode('import time; print("begun", flush=True); time.sleep(100)', { onStdout: () => { began = true } })
  const end = assert.rejects(run, TimeoutError)
  await until(() => began, 'it runs')
  await other.kill()
  await end
  await assert.rejects(other.runCode('1', untimed), TimeoutError)
})
