import { test } from 'node:test'
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Template, waitForFile, waitForTimeout } from 'e2b'
import { box, until } from './setup.mjs'

const dir = mkdtempSync(join(tmpdir(), 'builder-'))
process.on('exit', () => rmSync(dir, { recursive: true, force: true }))
for (const name of ['a.txt', 'b.txt']) writeFileSync(join(dir, name), name + '\n')

test('a build in the background, of every kind of step', async () => {
  const name = 'builder-' + Date.now()
  const recipe = Template({ fileContextPath: dir })
    .fromDockerfile('FROM e2bdev/base\nENV FROM_FILE=yes\nRUN echo docker > /docker.txt\n')
    .copyItems([{ src: 'a.txt', dest: '/opt/a.txt' }, { src: 'b.txt', dest: '/opt/b.txt', mode: 0o600 }])
    .makeDir('/opt/dir', { mode: 0o700, user: 'root' })
    .makeSymlink('/opt/a.txt', '/opt/link', { user: 'root' })
    .rename('/opt/b.txt', '/opt/dir/c.txt', { user: 'root' })
    .remove('/opt/none', { force: true, user: 'root' })
    .setUser('mish') // whom nobody has made
    .setWorkdir('work')
    .skipCache()
    .runCmd(['whoami > who.txt', 'pwd >> who.txt', 'sudo -n whoami >> who.txt'])
    .setReadyCmd(waitForTimeout(100))
  const started = await Template.buildInBackground(recipe, name, { memoryMB: 512 })
  let status
  await until(async () => {
    status = await Template.getBuildStatus(started)
    return status.status === 'ready' || status.status === 'error'
  }, 'the build ends')
  assert.equal(status.status, 'ready', JSON.stringify(status.reason))
  assert.equal(await Template.aliasExists(name), true)
  assert.deepEqual((await Template.getTags(name)).map((t) => [t.tag, t.buildId]), [['default', started.buildId]])
  const sbx = await box({}, name)
  const out = await sbx.commands.run('cat /docker.txt /opt/link /opt/dir/c.txt who.txt; echo $FROM_FILE; stat -c %a /opt/dir', { user: 'root' })
  assert.equal(out.stdout, 'docker\na.txt\nb.txt\nmish\n/home/user/work\nroot\nyes\n700\n')
  assert.equal((await sbx.commands.run('whoami; pwd')).stdout, 'mish\n/home/user/work\n')
  assert.equal((await sbx.files.write('note', 'x')).path, '/home/mish/note')
})

test('what the builder makes of other calls', async () => {
  const from = [['fromDebianImage', 'debian'], ['fromUbuntuImage', 'ubuntu'], ['fromFedoraImage', 'fedora'], ['fromAlpineImage', 'alpine'],
    ['fromArchImage', 'archlinux'], ['fromPythonImage', 'python'], ['fromNodeImage', 'node'], ['fromBunImage', 'bun']]
  const starts = [Template().fromDebianImage(), Template().fromUbuntuImage(), Template().fromFedoraImage(), Template().fromAlpineImage(),
    Template().fromArchImage(), Template().fromPythonImage(), Template().fromNodeImage(), Template().fromBunImage()]
  starts.forEach((t, i) => assert.match(Template.toDockerfile(t.runCmd('true')), new RegExp('FROM .*' + from[i][1])))
  const text = Template.toDockerfile(Template().fromImage('debian:12').pipInstall('numpy').npmInstall('left-pad').bunInstall('zod').aptInstall('jq')
    .gitClone('https://git.example.com/x.git', '/x').setStartCmd('sleep 1', waitForFile('/x')))
  for (const part of ['pip install', 'npm install', 'bun install', 'apt-get install', 'git clone']) assert.ok(text.includes(part), part)
  assert.match(waitForFile('/x').getCmd(), /\/x/)
})

test('registries that ask for a login', async () => {
  const name = 'private-' + Date.now()
  const general = Template().fromImage('localhost:1/team/app:1', { username: 'me', password: 'hunter2' }).runCmd('true')
  await assert.rejects(Template.build(general, name), (e) => /cannot be reached/.test(e.message) && !e.message.includes('hunter2'))
  const google = Template().fromGCPRegistry('localhost:1/team/app:1', { serviceAccountJSON: { private_key: 'hunter2' } }).runCmd('true')
  await assert.rejects(Template.build(google, name), (e) => /cannot be reached/.test(e.message) && !e.message.includes('hunter2'))
  const aws = Template().fromAWSRegistry('localhost:1/team/app:1', { accessKeyId: 'a', secretAccessKey: 'b', region: 'c' }).runCmd('true')
  await assert.rejects(Template.build(aws, name), /is no image of a registry of AWS/)
})
