import { test, after } from 'node:test'
import assert from 'node:assert/strict'
import { Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError } from 'e2b'
import { box } from './setup.mjs'

const name = 'vol-' + Date.now()
const volume = await Volume.create(name)
after(() => Volume.destroy(volume.volumeId).catch(() => false))

test('volumes', async () => {
  assert.equal(volume.name, name)
  assert.ok((await Volume.list()).some((v) => v.volumeId === volume.volumeId && v.name === name))
  assert.equal((await Volume.getInfo(volume.volumeId)).token, volume.token)
  assert.equal((await Volume.connect(volume.volumeId)).name, name)
  await assert.rejects(Volume.create(name), VolumeError)
  await assert.rejects(Volume.getInfo('nosuchvolumeatall000'), VolumeNotFoundError)
  assert.equal(await Volume.destroy('nosuchvolumeatall000'), false)
  const other = new Volume(volume.volumeId, name, volume.token.replace(/.$/, (c) => (c === '0' ? '1' : '0')))
  await assert.rejects(other.list('/'))
})

test('what a volume holds', async () => {
  const made = await volume.writeFile('/a.txt', 'one')
  assert.deepEqual([made.name, made.path, made.type, made.size, made.uid, made.mode], ['a.txt', '/a.txt', 'file', 3, 1000, 0o644])
  assert.ok(made.mtime instanceof Date)
  await assert.rejects(volume.writeFile('/a.txt', 'two'), VolumeError)
  await volume.writeFile('/a.txt', 'two', { force: true })
  assert.equal(await volume.readFile('/a.txt'), 'two')
  assert.equal(Buffer.from(await volume.readFile('/a.txt', { format: 'bytes' })).toString(), 'two')
  assert.equal((await volume.readFile('/a.txt', { format: 'blob' })).size, 3)
  let size = 0
  for await (const part of await volume.readFile('/a.txt', { format: 'stream' })) size += part.length
  assert.equal(size, 3)
  await assert.rejects(volume.makeDir('/deep/er'), VolumePathNotFoundError)
  assert.equal((await volume.makeDir('/deep/er', { force: true, mode: 0o700 })).mode, 0o700)
  await volume.writeFile('/deep/er/b', new Blob(['b']), { uid: 0, gid: 0, mode: 0o600 })
  assert.deepEqual((await volume.list('/')).map((e) => e.path), ['/a.txt', '/deep'])
  assert.deepEqual((await volume.list('/deep', { depth: 2 })).map((e) => e.path), ['/deep/er', '/deep/er/b'])
  const info = await volume.updateMetadata('/a.txt', { mode: 0o640, uid: 7 })
  assert.deepEqual([info.mode, info.uid], [0o640, 7])
  assert.equal((await volume.getInfo('/deep')).type, 'directory')
  assert.equal(await volume.exists('/deep/er/b'), true)
  await volume.remove('/deep')
  assert.equal(await volume.exists('/deep/er/b'), false)
  await assert.rejects(volume.readFile('/deep/er/b'), VolumePathNotFoundError)
})

test('sandboxes share it', async () => {
  await volume.writeFile('/shared', 'from outside', { force: true })
  const [a, b] = [await box({ volumeMounts: { '/mnt/data': volume } }), await box({ volumeMounts: { '/mnt/data': name } })]
  assert.deepEqual((await a.getInfo()).volumeMounts, [{ name, path: '/mnt/data' }])
  assert.equal(await a.files.read('/mnt/data/shared'), 'from outside')
  await a.commands.run('echo inside > /mnt/data/made')
  assert.equal((await b.commands.run('cat /mnt/data/made')).stdout, 'inside\n')
  assert.equal(await volume.readFile('/made'), 'inside\n')
  await a.pause()
  await a.connect()
  await a.commands.run('echo again > /mnt/data/made')
  assert.equal(await b.files.read('/mnt/data/made'), 'again\n')
  await assert.rejects(Volume.destroy(volume.volumeId), /has it/)
  await Promise.all([a.kill(), b.kill()])
  assert.equal(await Volume.destroy(volume.volumeId), true)
  await assert.rejects(box({ volumeMounts: { '/mnt/data': name } }), /no volume/)
})
