import assert from 'node:assert/strict'
import { collectFile, parseSSEStream, streamFile } from '@cloudflare/sandbox'

// What crosses from one isolate to another of an error is its name and its text.
const named = (want) => (e) => {
  assert.match(`${e.name} ${e.message} ${e.code}`, want)
  return true
}

const digest = async (bytes) => new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)).toHex()

export async function files(t) {
  const box = t.box()
  assert.equal((await box.mkdir('/workspace/a/b', { recursive: true })).success, true)
  await assert.rejects(box.mkdir('/workspace/x/y/z'))
  assert.equal((await box.writeFile('/workspace/a/text', 'zwölf\n')).success, true)
  assert.equal((await box.writeFile('/workspace/new/folders/file', 'x')).success, true)
  const text = await box.readFile('/workspace/a/text')
  assert.equal(text.content, 'zwölf\n')
  assert.equal(text.encoding, 'utf-8')
  await box.writeFile('/workspace/a/bin', btoa('\x00\x01\xff'), { encoding: 'base64' })
  const bin = await box.readFile('/workspace/a/bin', { encoding: 'base64' })
  assert.equal(bin.content, btoa('\x00\x01\xff'))
  assert.equal((await box.readFile('/workspace/a/bin')).encoding, 'base64')
  await box.renameFile('/workspace/a/bin', '/workspace/a/renamed')
  await box.moveFile('/workspace/a/renamed', '/workspace/a/b/moved')
  assert.equal((await box.exists('/workspace/a/renamed')).exists, false)
  assert.equal((await box.exists('/workspace/a/b/moved')).exists, true)
  await box.writeFile('/workspace/a/.hidden', 'x')
  assert.deepEqual((await box.listFiles('/workspace/a')).files.map((f) => f.name).sort(), ['b', 'text'])
  const all = await box.listFiles('/workspace/a', { recursive: true, includeHidden: true })
  assert.deepEqual(all.files.map((f) => f.relativePath).sort(), ['.hidden', 'b', 'b/moved', 'text'])
  const one = all.files.find((f) => f.name === 'text')
  assert.equal(one.type, 'file')
  assert.equal(one.size, 7)
  assert.equal(one.mode, 'rw-r--r--')
  assert.equal(one.permissions.readable, true)
  await box.exec('cd /workspace/a')
  assert.equal((await box.readFile('text')).content, 'zwölf\n')
  assert.equal((await box.deleteFile('/workspace/a/text')).success, true)
}

export async function missingFiles(t) {
  const box = t.box()
  await assert.rejects(box.readFile('/workspace/none'), named(/FileNotFoundError|FILE_NOT_FOUND/))
  await assert.rejects(box.deleteFile('/workspace/none'), named(/FileNotFoundError|FILE_NOT_FOUND/))
  await assert.rejects(box.renameFile('/workspace/none', '/workspace/x'), named(/FileNotFoundError|FILE_NOT_FOUND/))
  await assert.rejects(box.deleteFile('/workspace'), named(/[Dd]irectory|IS_DIRECTORY/))
  await assert.rejects(box.readFile('/workspace'), named(/[Dd]irectory|IS_DIRECTORY/))
  await assert.rejects(box.listFiles('/workspace/none'), named(/NotFound|NOT_FOUND/))
}

export async function streamedFiles(t) {
  const box = t.box()
  await box.exec('seq 300000 > text; head -c 2000000 /dev/urandom > bin')
  const text = await collectFile(await box.readFileStream('/workspace/text'))
  assert.equal(typeof text.content, 'string')
  assert.equal(text.content.length, 1988895)
  const bin = await collectFile(await box.readFileStream('/workspace/bin'))
  assert.equal(bin.content.byteLength, 2000000)
  assert.equal((await box.exec('sha256sum bin')).stdout.slice(0, 64), await digest(bin.content))
  let chunks = 0
  for await (const _ of streamFile(await box.readFileStream('/workspace/text'))) chunks++
  assert(chunks > 1)
}

export async function rawFiles(t) {
  if (t.transport !== 'rpc') return 'skipped'
  const box = t.box()
  const bytes = new Uint8Array(3_000_000).map((_, i) => i * 31)
  const wrote = await box.writeFile('/workspace/new/raw', new Response(bytes).body)
  assert.equal(wrote.bytesWritten, bytes.length)
  const got = await box.readFile('/workspace/new/raw', { encoding: 'none' })
  assert.equal(got.size, bytes.length)
  assert.equal(await digest(await new Response(got.content).arrayBuffer()), await digest(bytes))
}

export async function watching(t) {
  const box = t.box()
  await box.mkdir('/workspace/w/node_modules', { recursive: true })
  const events = []
  const stream = await box.watch('/workspace/w', { recursive: true })
  const reading = (async () => {
    for await (const e of parseSSEStream(stream)) {
      if (e.type === 'event') events.push(`${e.eventType} ${e.path.split('/').pop()}`)
      if (events.some((x) => x === 'delete gone')) return
    }
  })()
  await box.exec('echo 1 > w/made; echo 2 >> w/made; echo x > w/node_modules/left-out; mv w/made w/moved; touch w/gone; sleep 0.3; rm w/gone')
  await Promise.race([reading, new Promise((_, no) => setTimeout(() => no(new Error(`only ${events}`)), 60000))])
  assert(events.includes('create made') || events.includes('modify made') || events.includes('move_to moved'), `${events}`)
  assert(!events.some((x) => x.includes('left-out')), `${events}`)
}

export async function changes(t) {
  const box = t.box()
  await box.mkdir('/workspace/c')
  const first = await box.checkChanges('/workspace/c')
  assert.equal(first.success, true)
  const again = await box.checkChanges('/workspace/c', { since: first.version })
  assert.equal(again.status, 'unchanged')
  await box.writeFile('/workspace/c/x', '1')
  let now
  for (let i = 0; i < 100 && now?.status !== 'changed'; i++) {
    now = await box.checkChanges('/workspace/c', { since: first.version })
    if (now.status !== 'changed') await new Promise((r) => setTimeout(r, 100))
  }
  assert.equal(now.status, 'changed')
  const strange = await box.checkChanges('/workspace/c', { since: 'no-such-version' })
  assert.equal(strange.status, 'resync')
}

export async function git(t) {
  const box = t.box()
  await box.exec('git config --global user.email a@b.c; git config --global user.name n; git init -q -b main /srv/repo && cd /srv/repo && echo one > a && git add . && git commit -qm one && git branch side && git clone -q --bare /srv/repo /srv/www/repo.git && git -C /srv/www/repo.git update-server-info')
  await box.exec('cd /workspace')
  const p = await box.startProcess(`node -e "require('http').createServer((q,s)=>{try{s.end(require('fs').readFileSync('/srv/www'+q.url.split('?')[0]))}catch{s.statusCode=404;s.end()}}).listen(8200)"`)
  await p.waitForPort(8200, { mode: 'tcp', timeout: 60000 })
  const got = await box.gitCheckout('http://localhost:8200/repo.git', { branch: 'side', targetDir: '/workspace/mine' })
  assert.equal(got.success, true)
  assert.equal(got.branch, 'side')
  assert.equal(got.targetDir, '/workspace/mine')
  assert.equal((await box.readFile('/workspace/mine/a')).content, 'one\n')
  assert.equal((await box.gitCheckout('http://localhost:8200/repo.git')).targetDir, '/workspace/repo')
  await assert.rejects(box.gitCheckout('http://localhost:8200/none.git'), named(/Git\w+Error|GIT_/))
  await assert.rejects(box.gitCheckout('http://localhost:8200/repo.git', { branch: 'nope', targetDir: '/workspace/n' }), named(/Git\w+Error|GIT_/))
  const s = t.noting('ExecutionSession', await box.createSession({ id: 'g' }))
  assert.equal((await s.gitCheckout('http://localhost:8200/repo.git', { targetDir: '/workspace/s' })).success, true)
}
