// Buckets of an S3 server: mounted in sandboxes, and as what keeps backups. Only the Worker
// of miniflare is told of the server.
import assert from 'node:assert/strict'
import { AwsClient } from 'aws4fetch'

// stores gives a bucket of the server's, as the Worker itself reaches it.
export function storeOf(env, bucket) {
  const client = new AwsClient({ accessKeyId: env.S3_KEY, secretAccessKey: env.S3_SECRET, service: 's3', region: 'auto' })
  const call = (key, options) => client.fetch(`${env.S3_HTTP}/${bucket}/${key}`, options)
  const found = async (r, give) => {
    if (r.status === 404) {
      await r.body?.cancel()
      return null
    }
    if (!r.ok) throw new Error(`${r.status}: ${await r.text()}`)
    return give(r)
  }
  return {
    put: async (key, body) => found(await call(key, { method: 'PUT', body }), () => ({ key })),
    get: async (key) => found(await call(key), (r) => r),
    head: async (key) => found(await call(key, { method: 'HEAD' }), (r) => ({ key, size: Number(r.headers.get('content-length')) })),
    delete: async (key) => { await (await call(key, { method: 'DELETE' })).body?.cancel() },
    list: async () => { throw new Error('nobody lists') },
    text: async (key) => (await found(await call(key), (r) => r.text())),
  }
}

const rightKeys = (env) => ({ accessKeyId: env.S3_KEY, secretAccessKey: env.S3_SECRET })

async function eventually(ok, what) {
  for (let i = 0; i < 600; i++) {
    if (await ok()) return
    await new Promise((r) => setTimeout(r, 100))
  }
  throw new Error(`never came true: ${what}`)
}

// said runs a line in a sandbox that must succeed.
async function said(box, line) {
  const r = await box.exec(line)
  assert.equal(r.exitCode, 0, `${line}: ${r.stdout} ${r.stderr}`)
  return r.stdout
}

export async function remoteMounts(t) {
  const box = t.box()
  const store = storeOf(t.env, 'files')
  const at = `m${crypto.randomUUID().slice(0, 8)}`
  const options = { endpoint: t.env.S3_HTTP, credentials: rightKeys(t.env), s3fsOptions: ['stat_cache_expire=1'] }
  await store.put(`${at}/`, '')
  await store.put(`${at}/of-bucket`, 'from the bucket')
  await box.mountBucket('files', '/mnt/files', options)
  const file = `/mnt/files/${at}/of-bucket`
  assert.equal(await said(box, `cat ${file}`), 'from the bucket')
  assert.equal((await box.readFile(file)).content, 'from the bucket')
  await said(box, `cd /mnt/files/${at} && echo from the sandbox > of-sandbox && seq 200000 > large && mv of-sandbox renamed && mkdir -p sub && cp large sub/copy`)
  assert.equal(await store.text(`${at}/renamed`), 'from the sandbox\n')
  assert.equal((await store.head(`${at}/sub/copy`)).size, 1288895)
  assert.equal(await store.head(`${at}/of-sandbox`), null)
  await box.writeFile(`/mnt/files/${at}/written`, 'by the file call')
  assert.equal(await store.text(`${at}/written`), 'by the file call')
  await box.deleteFile(`/mnt/files/${at}/written`)
  assert.equal(await store.head(`${at}/written`), null)
  await store.put(`${at}/later`, 'put later')
  await eventually(async () => (await box.exec(`cat /mnt/files/${at}/later`)).stdout === 'put later', 'what is put later is there')

  // Another one, of a part of the bucket, that nobody can write to.
  await box.mountBucket('files', '/mnt/part', { ...options, prefix: `/${at}/`, readOnly: true })
  assert.equal(await said(box, 'cat /mnt/part/of-bucket'), 'from the bucket')
  assert.match((await box.exec('echo no > /mnt/part/no')).stderr, /Read-only file system/)
  await box.unmountBucket('/mnt/part')
  assert.equal((await box.exists('/mnt/part/of-bucket')).exists, false)
  assert.equal(await said(box, `cat ${file}`), 'from the bucket')
  const s = t.noting('ExecutionSession', await box.createSession({ id: 'mounts' }))
  await s.mountBucket('files', '/mnt/part', { ...options, prefix: `/${at}/` })
  assert.equal(await said(s, 'cat /mnt/part/of-bucket'), 'from the bucket')
  await s.unmountBucket('/mnt/part')
}

export async function badMounts(t) {
  const box = t.box()
  const options = { endpoint: t.env.S3_HTTP, credentials: rightKeys(t.env) }
  const refused = (name, ...args) => assert.rejects(box.mountBucket(...args), (e) => `${e.name} ${e.message}`.includes(name) || assert.fail(`${e.name} ${e.message}`))
  await refused('S3FSMountError', 'files', '/mnt/x', { ...options, credentials: { accessKeyId: 'wrong', secretAccessKey: 'wrong' } })
  await refused('S3FSMountError', 'no-such-bucket', '/mnt/x', options)
  await refused('MissingCredentialsError', 'files', '/mnt/x', { endpoint: t.env.S3_HTTP })
  await refused('InvalidMountConfigError', 'files', 'mnt/x', options)
  await refused('InvalidMountConfigError', 'files', '/mnt/x', { ...options, prefix: 'no-slash' })
  await assert.rejects(box.unmountBucket('/mnt/x'), /No active mount/)
  await box.mountBucket('files', '/mnt/x', options)
  await refused('InvalidMountConfigError', 'files', '/mnt/x', options)
  await box.destroy() // while it is mounted
}

// A sandbox that sleeps has its mounts end, as its client takes them to have; it mounts
// them again.
export async function mountsAsleep(t) {
  const box = t.box()
  const store = storeOf(t.env, 'files')
  const at = `a${crypto.randomUUID().slice(0, 8)}`
  await store.put(at, 'there')
  const options = { endpoint: t.env.S3_HTTP, credentials: rightKeys(t.env) }
  await box.mountBucket('files', '/mnt/files', options)
  assert.equal(await said(box, `echo kept > /workspace/own; cat /mnt/files/${at}`), 'there')
  await box.stop()
  await eventually(async () => (await box.getState()).status.startsWith('stopped'), 'it stops')
  assert.equal(await said(box, 'cat /workspace/own; ls -A /mnt/files; pgrep s3fs || true'), 'kept')
  await box.mountBucket('files', '/mnt/files', options)
  assert.equal(await said(box, `cat /mnt/files/${at}`), 'there')
}

// What the Worker reaches for the sandbox, which never has the keys: its own bucket, and
// the server's with the keys put in on the way.
export async function workersMounts(t) {
  const box = t.box()
  await t.env.FILES.put('mounted/of-binding', 'from the binding')
  await box.mountBucket('FILES', '/mnt/binding', {})
  assert.equal(await said(box, 'cat /mnt/binding/mounted/of-binding'), 'from the binding')
  await said(box, 'echo to the binding > /mnt/binding/of-mount')
  assert.equal(await (await t.env.FILES.get('of-mount')).text(), 'to the binding\n')
  await box.unmountBucket('/mnt/binding')

  const store = storeOf(t.env, 'files')
  const at = `p${crypto.randomUUID().slice(0, 8)}`
  await store.put(at, 'behind the proxy')
  await box.mountBucket('files', '/mnt/proxied', { endpoint: t.env.S3_HTTP, credentials: rightKeys(t.env), credentialProxy: true })
  assert.equal(await said(box, `cat /mnt/proxied/${at}`), 'behind the proxy')
  assert.equal(await said(box, `grep -rlF ${t.env.S3_SECRET} /tmp /etc /proc/[0-9]*/environ 2>/dev/null | wc -l`), '0')
  await box.unmountBucket('/mnt/proxied')
}

// Backups by signed URLs: the sandbox itself sends and gets them.
export async function remoteBackups(t) {
  const box = t.box({}, 'Stored')
  const store = storeOf(t.env, 'files')
  await box.writeFile('/usr/local/share/ca-certificates/s3.crt', t.env.S3_CA)
  await said(box, 'update-ca-certificates > /dev/null 2>&1; mkdir -p data/sub && echo one > data/sub/file && ln -s sub data/link')
  const small = await box.createBackup({ dir: '/workspace/data', name: 'small' })
  assert.equal(small.localBucket, undefined)
  assert.equal(JSON.parse(await store.text(`backups/${small.id}/meta.json`)).name, 'small')
  await said(box, 'head -c 12000000 /dev/urandom > data/large && sha256sum data/large > sum')
  const large = await box.createBackup({ dir: '/workspace/data', compression: { format: 'zstd' }, multipart: false }) // in parts the Worker takes part, who knows not the name
  assert((await store.head(`backups/${large.id}/data.sqsh`)).size > 10e6)
  await said(box, 'rm -rf data && mkdir data && echo other > data/new')
  assert.equal((await box.restoreBackup(large)).success, true)
  assert.equal(await said(box, 'cat data/sub/file data/link/file; sha256sum -c --quiet sum && echo same; ls data'), 'one\none\nsame\nlarge\nlink\nsub')
  assert.equal((await box.restoreBackup(small)).success, true)
  assert.equal(await said(box, 'ls data'), 'link\nsub')
  await store.delete(`backups/${small.id}/data.sqsh`)
  await assert.rejects(box.restoreBackup(small), (e) => /BackupNotFound|not found/i.test(`${e.name} ${e.message}`))
  const other = t.box({}, 'Stored')
  await other.writeFile('/usr/local/share/ca-certificates/s3.crt', t.env.S3_CA)
  await said(other, 'update-ca-certificates > /dev/null 2>&1; mkdir -p data')
  assert.equal((await other.restoreBackup(large)).success, true)
  assert.equal(await said(other, 'cat data/sub/file'), 'one')
}
