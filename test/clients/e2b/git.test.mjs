import { test } from 'node:test'
import assert from 'node:assert/strict'
import { GitAuthError, GitUpstreamError, InvalidArgumentError } from 'e2b'
import { box } from './setup.mjs'

const sbx = await box()
const git = sbx.git
const repo = '/home/user/repo'

test('a repository of its own', async () => {
  await git.init(repo, { initialBranch: 'main' })
  await git.configureUser('Ada', 'ada@example.com', { scope: 'local', path: repo })
  assert.equal(await git.getConfig('user.name', { scope: 'local', path: repo }), 'Ada')
  await git.setConfig('core.abbrev', '10', { scope: 'local', path: repo })
  await sbx.files.write(repo + '/a.txt', 'one\n')
  const before = await git.status(repo)
  assert.deepEqual(before.fileStatus.map((f) => [f.name, f.status]), [['a.txt', 'untracked']])
  await git.add(repo)
  await git.commit(repo, 'first')
  assert.equal((await git.status(repo)).isClean, true)
  await sbx.files.write(repo + '/a.txt', 'two\n')
  await git.add(repo, { files: ['a.txt'] })
  await git.reset(repo, { mode: 'mixed' })
  await git.restore(repo, { paths: ['a.txt'] })
  assert.equal(await sbx.files.read(repo + '/a.txt'), 'one\n')
})

test('branches', async () => {
  await git.createBranch(repo, 'topic')
  assert.equal((await git.branches(repo)).currentBranch, 'topic')
  await git.checkoutBranch(repo, 'main')
  await git.deleteBranch(repo, 'topic', { force: true })
  assert.deepEqual((await git.branches(repo)).branches, ['main'])
})

test('a remote', async () => {
  await sbx.commands.run('git init -q --bare /home/user/remote.git')
  await git.remoteAdd(repo, 'origin', 'file:///home/user/remote.git')
  assert.equal(await git.remoteGet(repo, 'origin'), 'file:///home/user/remote.git')
  await assert.rejects(git.pull(repo), GitUpstreamError)
  await git.push(repo, { remote: 'origin', branch: 'main', setUpstream: true })
  await git.clone('file:///home/user/remote.git', { path: '/home/user/copy', branch: 'main' })
  await git.pull('/home/user/copy')
  assert.equal(await sbx.files.read('/home/user/copy/a.txt'), 'one\n')
  await git.dangerouslyAuthenticate({ username: 'me', password: 'token', host: 'git.example.com' })
  assert.match((await sbx.commands.run('cat /home/user/.git-credentials')).stdout, /me:token@git\.example\.com/)
  await assert.rejects(git.clone('https://git.example.com/x.git', { username: 'me' }), (e) => e instanceof InvalidArgumentError || e instanceof GitAuthError || e instanceof Error)
})
