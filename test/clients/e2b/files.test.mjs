import { test } from 'node:test'
import assert from 'node:assert/strict'
import { FileNotFoundError, InvalidArgumentError, NotFoundError, getSignature } from 'e2b'
import { box, sleep, until } from './setup.mjs'

const sbx = await box()
const files = sbx.files

test('write and read in every form', async () => {
  const info = await files.write('text/a.txt', 'hello')
  assert.deepEqual([info.name, info.type, info.path], ['a.txt', 'file', '/home/user/text/a.txt'])
  assert.equal(await files.read('text/a.txt'), 'hello')
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
  await files.write('/tmp/bytes', new Blob([bytes]))
  assert.deepEqual(await files.read('/tmp/bytes', { format: 'bytes' }), bytes)
  assert.equal((await files.read('/tmp/bytes', { format: 'blob' })).size, 256)
  let size = 0
  for await (const part of await files.read('/tmp/bytes', { format: 'stream' })) size += part.length
  assert.equal(size, 256)
  await files.write('empty', '')
  assert.equal(await files.read('empty'), '')
  await assert.rejects(files.read('no-such-file'), NotFoundError)
  await assert.rejects(files.read('/tmp'), InvalidArgumentError)
  await assert.rejects(files.write('/tmp', 'x'), InvalidArgumentError)
})

test('several at once', async () => {
  const all = await files.write([{ path: 'many/1', data: 'one' }, { path: 'many/deep/2', data: 'two' }])
  assert.deepEqual(all.map((f) => f.path), ['/home/user/many/1', '/home/user/many/deep/2'])
  assert.equal(await files.read('many/deep/2'), 'two')
  await files.writeFiles([{ path: 'many/3', data: 'three' }])
  assert.equal(await files.read('many/3'), 'three')
})

test('as another user', async () => {
  await files.write('/root/secret', 'x', { user: 'root' })
  assert.equal((await files.getInfo('/root/secret', { user: 'root' })).owner, 'root')
  await files.write('mine', 'x')
  const info = await files.getInfo('mine')
  assert.deepEqual([info.owner, info.group, info.mode, info.permissions, info.size], ['user', 'user', 0o644, '-rw-r--r--', 1])
})

test('20 MB there and back', async () => {
  const data = new Uint8Array(20 << 20)
  for (let i = 0; i < data.length; i += 4099) data[i] = i & 255
  await files.write('big', new Blob([data]))
  assert.equal(Buffer.compare(Buffer.from(await files.read('big', { format: 'bytes' })), Buffer.from(data)), 0)
})

test('packed on the way', async () => {
  const text = 'again and again '.repeat(10_000)
  await files.write('packed', text, { gzip: true })
  assert.equal(await files.read('packed', { gzip: true }), text)
  assert.equal((await files.getInfo('packed')).size, text.length)
})

test('folders', async () => {
  assert.equal(await files.makeDir('dir/sub'), true)
  assert.equal(await files.makeDir('dir/sub'), false)
  await files.write('dir/sub/deep/f', '1')
  const one = await files.list('dir')
  assert.deepEqual(one.map((e) => [e.name, e.type]), [['sub', 'dir']])
  const all = await files.list('dir', { depth: 3 })
  assert.deepEqual(all.map((e) => e.path), ['/home/user/dir/sub', '/home/user/dir/sub/deep', '/home/user/dir/sub/deep/f'])
  assert.equal(await files.exists('dir/sub/deep/f'), true)
  assert.equal(await files.exists('dir/none'), false)
  const moved = await files.rename('dir/sub/deep/f', 'dir/new/place')
  assert.equal(moved.path, '/home/user/dir/new/place')
  await files.remove('dir')
  await files.remove('dir')
  assert.equal(await files.exists('dir'), false)
  await assert.rejects(files.list('dir'), FileNotFoundError)
  await assert.rejects(files.rename('none', 'other'), FileNotFoundError)
})

test('links are what they lead to', async () => {
  await files.write('target', 'text')
  await sbx.commands.run('ln -sf target /home/user/link; ln -sf nowhere /home/user/broken')
  const info = await files.getInfo('link')
  assert.deepEqual([info.type, info.symlinkTarget], ['file', '/home/user/target'])
  assert.equal((await files.getInfo('broken')).symlinkTarget, '/home/user/nowhere')
})

test('metadata of files', async () => {
  await files.write('noted', 'x', { metadata: { Author: 'me', n: '1' } })
  assert.deepEqual((await files.getInfo('noted')).metadata, { author: 'me', n: '1' })
  await files.write('noted', 'y', { metadata: { n: '2' } })
  assert.deepEqual((await files.getInfo('noted')).metadata, { n: '2' })
  await files.write('notes/one', 'z', { metadata: { n: '3' } })
  await sbx.commands.run(`touch notes/two notes/zero && python3 -c "import os; os.setxattr('notes/two', 'user.e2b.by', b'hand')"`)
  assert.deepEqual((await files.list('notes')).map((e) => e.metadata), [{ n: '3' }, { by: 'hand' }, undefined])
  assert.deepEqual((await files.rename('notes/one', 'notes/1')).metadata, { n: '3' })
})

test('watch', async () => {
  await files.makeDir('watched/in')
  const events = []
  const watch = await files.watchDir('watched', (e) => { events.push(`${e.type} ${e.name}`) }, { recursive: true })
  await files.write('watched/a', '1')
  await until(() => events.includes('create a') && events.includes('write a'), 'a write is seen')
  events.length = 0
  await files.write('watched/a', '2')
  await until(() => events.includes('write a'), 'another write is seen')
  await files.rename('watched/a', 'watched/in/b')
  await until(() => events.includes('create in/b'), 'a rename is seen')
  await files.makeDir('watched/later')
  await sleep(100)
  await files.write('watched/later/c', '1')
  await until(() => events.includes('create later/c'), 'a folder made later is watched')
  await files.remove('watched/later/c')
  await until(() => events.includes('remove later/c'), 'a removal is seen')
  await watch.stop()
  await assert.rejects(files.watchDir('none', () => {}), FileNotFoundError)
})

test('signed URLs', async () => {
  const fetched = async (url, init) => {
    const r = await fetch(url, init)
    return [r.status, await r.text()]
  }
  await files.write('signed.txt', 'for you')
  assert.deepEqual(await fetched(await sbx.downloadUrl('signed.txt')), [200, 'for you'])
  assert.deepEqual(await fetched(await sbx.downloadUrl('signed.txt', { user: 'user', useSignatureExpiration: 60 })), [200, 'for you'])
  const { signature } = await getSignature({ path: 'signed.txt', operation: 'read', envdAccessToken: sbx.envdAccessToken })
  assert.equal(new URL(await sbx.downloadUrl('signed.txt')).searchParams.get('signature'), signature)
  const form = new FormData()
  form.append('file', 'uploaded')
  assert.equal((await fetched(await sbx.uploadUrl('up.txt', { useSignatureExpiration: 60 }), { method: 'POST', body: form }))[0], 200)
  assert.equal(await files.read('up.txt'), 'uploaded')
  const [status, text] = await fetched((await sbx.downloadUrl('signed.txt')).replace(/signature=[^&]*/, 'signature=v1_x'))
  assert.deepEqual([status, JSON.parse(text).message], [401, 'invalid signature'])
})
