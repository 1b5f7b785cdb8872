import { test } from 'node:test'
import assert from 'node:assert/strict'
import { mkdtempSync, mkdirSync, writeFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Sandbox, Template, defaultBuildLogger, waitForPort, waitForTimeout } from 'e2b'
import { box } from './setup.mjs'

const name = 'built-' + Date.now()
const dir = mkdtempSync(join(tmpdir(), 'context-'))
process.on('exit', () => rmSync(dir, { recursive: true, force: true }))
mkdirSync(join(dir, 'src'))
writeFileSync(join(dir, 'src', 'app.py'), 'print("from the context")\n')

const recipe = () => Template({ fileContextPath: dir })
  .fromBaseImage()
  .setEnvs({ STAGE: 'test' })
  .copy('src', '/opt/app/')
  .setWorkdir('/opt/app')
  .runCmd('python3 app.py > out.txt && echo $STAGE >> out.txt && whoami >> out.txt')

test('a template is built, and its steps are kept', async () => {
  const logs = []
  const built = await Template.build(recipe(), name, { cpuCount: 1, memoryMB: 512, onBuildLogs: (l) => logs.push(l.message) })
  assert.ok(built.templateId && built.buildId)
  assert.ok(logs.some((m) => m.includes('RUN')), 'the log tells of the steps')
  assert.equal(await Template.exists(name), true)
  const sbx = await box({}, name)
  assert.equal(await sbx.files.read('/opt/app/out.txt'), 'from the context\ntest\nuser\n')
  assert.equal((await sbx.commands.run('echo $STAGE; pwd')).stdout, 'test\n/opt/app\n')
  assert.equal((await sbx.getInfo()).memoryMB, 512)
  await Template.build(recipe(), name, { memoryMB: 512 })
})

test('what it starts runs in every sandbox', async () => {
  const started = Template().fromTemplate(name).setStartCmd('python3 -m http.server 8123', waitForPort(8123))
  await Template.build(started, name + '-started')
  const sbx = await box({}, name + '-started')
  assert.match((await sbx.commands.run('curl -s localhost:8123')).stdout, /Directory listing/)
})

test('tags', async () => {
  await Template.assignTags(name, ['v1', 'stable'])
  assert.deepEqual((await Template.getTags(name)).map((t) => t.tag).sort(), ['default', 'stable', 'v1'])
  const sbx = await box({}, `${name}:v1`)
  assert.equal(await sbx.files.exists('/opt/app/app.py'), true)
  await sbx.kill()
  await Template.removeTags(name, ['v1'])
  await assert.rejects(Sandbox.create(`${name}:v1`))
})

test('several tags at once, of what is started too', async () => {
  const many = name + '-many', logged = [], show = defaultBuildLogger({ minLevel: 'error' })
  const built = await Template.build(Template().fromTemplate('base').setStartCmd('sleep 1000', waitForTimeout(100)), many, { tags: ['v1', 'v2'], onBuildLogs: (entry) => { logged.push(String(entry)); show(entry) } })
  assert.ok(logged.length > 2 && logged.every((line) => /\d/.test(line)), logged.join('\n'))
  assert.deepEqual([built.templateId, (await Template.getTags(many)).map((t) => t.tag).sort()], [many, ['v1', 'v2']])
  await Template.assignTags(`${many}:v1`, 'latest')
  await Template.removeTags(many, ['v1'])
  await assert.rejects(Sandbox.create(many), /not found/) // no tag is the default
  const sbx = await box({}, `${many}:latest`)
  assert.match((await sbx.commands.run('pgrep -a sleep; pip install --dry-run --no-index x 2>&1 || true')).stdout, /sleep 1000[^]*No matching distribution/)
  assert.equal((await sbx.getInfo()).templateId, many)
  await sbx.kill()
  assert.equal(await Sandbox.deleteSnapshot(many), true) // a template, with its tags
  assert.equal(await Template.exists(`${many}:v2`), false)
})

test('a build that fails says where', async () => {
  const broken = Template().fromBaseImage().runCmd('echo fine').runCmd('exit 9')
  await assert.rejects(Template.build(broken, name + '-broken'), /failed to run command 'exit 9': .*code 9/)
  const who = Template().fromBaseImage().runCmd('whoami', { user: 'nobody1' })
  await assert.rejects(Template.build(who, name + '-broken'),
    (e) => e.message === "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'nobody1'")
  const started = Template().fromBaseImage().setStartCmd('exit 3', waitForTimeout(60_000)) // it does not wait for that
  await assert.rejects(Template.build(started, name + '-broken'), /ended with code 3/)
  const nothing = Template().fromTemplate('nosuch').runCmd('true')
  await assert.rejects(Template.build(nothing, name + '-broken'), (e) => e.stack.includes('templates.test.mjs'))
  assert.equal(await Template.exists(name + '-broken'), false)
})
