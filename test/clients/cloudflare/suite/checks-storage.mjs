import assert from 'node:assert/strict'

export async function backups(t) {
  const box = t.box()
  await box.exec('mkdir -p data/sub && echo one > data/sub/file && echo x > data/left.log && ln -s sub data/link && head -c 1000000 /dev/urandom > data/bin && sha256sum data/bin > sum')
  const kept = await box.createBackup({ dir: '/workspace/data', name: 'first', localBucket: true, excludes: ['*.log'] })
  assert.match(kept.id, /^[0-9a-f-]{36}$/)
  assert.equal(kept.dir, '/workspace/data')
  await box.exec('rm -rf data/* && echo other > data/new')
  assert.equal((await box.restoreBackup(kept)).success, true)
  assert.equal((await box.exec('cat data/sub/file data/link/file; sha256sum -c --quiet sum && echo same; ls data/left.log 2>/dev/null')).stdout, 'one\none\nsame')
  const s = t.noting('ExecutionSession', await box.createSession({ id: 'b' }))
  const again = await s.createBackup({ dir: '/workspace/data', localBucket: true })
  assert.equal((await s.restoreBackup(again)).success, true)
}

export async function badBackups(t) {
  const box = t.box()
  await assert.rejects(box.createBackup({ dir: '/etc', localBucket: true }), (e) => /InvalidBackupConfig|INVALID_BACKUP|must be/i.test(`${e.name} ${e.message}`))
  await assert.rejects(box.createBackup({ dir: '/workspace/none', localBucket: true }))
  await assert.rejects(box.restoreBackup({ id: crypto.randomUUID(), dir: '/workspace', localBucket: true }), (e) => /BackupNotFound|not found/i.test(`${e.name} ${e.message}`))
}

export async function mounts(t) {
  const box = t.box()
  await t.env.FILES.put('dir/of-bucket', 'from the bucket')
  await box.mountBucket('FILES', '/mnt/files', { localBucket: true })
  const wait = async (ok, what) => {
    for (let i = 0; i < 600; i++) {
      if (await ok()) return
      await new Promise((r) => setTimeout(r, 100))
    }
    throw new Error(`never came true: ${what}`)
  }
  await wait(async () => (await box.exists('/mnt/files/dir/of-bucket')).exists, 'the object is a file')
  assert.equal((await box.readFile('/mnt/files/dir/of-bucket')).content, 'from the bucket')
  await box.writeFile('/mnt/files/of-sandbox', 'from the sandbox')
  await wait(async () => (await (await t.env.FILES.get('of-sandbox'))?.text()) === 'from the sandbox', 'the file is an object')
  await box.unmountBucket('/mnt/files')
  const s = t.noting('ExecutionSession', await box.createSession({ id: 'm' }))
  await s.mountBucket('FILES', '/mnt/session', { localBucket: true, readOnly: true })
  await s.unmountBucket('/mnt/session')
}
