// Terminals, repositories, archives and what only one way has.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { client, events, leave, refused, rpc, terminal } from './setup.mjs'

/** A terminal's WebSocket that remembers what it was sent. */
async function attach(session) {
  const socket = terminal(session)
  socket.binaryType = 'arraybuffer'
  const t = { socket, text: '', notices: [], wake: () => {} }
  socket.onmessage = ({ data }) => {
    if (typeof data === 'string') t.notices.push(JSON.parse(data))
    else t.text += new TextDecoder().decode(data)
    t.wake()
  }
  t.until = async (ok) => {
    while (!ok(t)) await new Promise((wake) => { t.wake = wake })
  }
  t.type = (text) => socket.send(new TextEncoder().encode(text))
  await t.until(() => t.notices.some((n) => n.type === 'ready'))
  return t
}

describe('terminals', { timeout: 120_000 }, () => {
  let c
  before(() => { c = client('http') })

  test('one a session, which goes on without its clients', async () => {
    await c.commands.execute('export SHOWN=from-session; mkdir -p /workspace/tty; cd /workspace/tty', 'tty')
    const first = await attach('tty')
    first.type('echo "<$SHOWN $(basename $PWD) $TERM>"\r')
    await first.until((t) => t.text.includes('<from-session tty xterm-256color>'))
    first.type('echo $((6*7))-kept; cat\r')
    await first.until((t) => t.text.includes('42-kept'))
    first.socket.close()
    const again = await attach('tty')
    assert.ok(again.text.includes('42-kept'), again.text)
    const beside = await attach('tty')
    again.type('typed-once\r')
    await beside.until((t) => t.text.split('typed-once').length > 2)
    beside.socket.send(JSON.stringify({ type: 'resize', cols: 77, rows: 20 }))
    again.type('\x03stty size\r')
    await again.until((t) => t.text.includes('20 77'))
    again.type('exit 3\r')
    await again.until((t) => t.notices.some((n) => n.type === 'exit' && n.code === 3))
    beside.socket.close()
  })
})

describe('repositories', { timeout: 120_000 }, () => {
  const S = 'git'
  let c
  before(async () => {
    c = client('http')
    await c.commands.execute(`mkdir -p /srv/made && cd /srv/made && git init -q -b trunk . && git config user.email a@b.c && git config user.name n &&
      for i in 1 2 3; do echo $i > f; git add f; git commit -qm c$i; done; git branch other; cd /workspace`, S)
  })

  test('clone', async () => {
    const r = await c.git.checkout('file:///srv/made', S, { targetDir: '/workspace/clone', depth: 1 })
    assert.deepEqual([r.success, r.branch, r.targetDir, r.repoUrl], [true, 'trunk', '/workspace/clone', 'file:///srv/made'])
    assert.equal((await c.commands.execute('git -C /workspace/clone rev-list --count HEAD', S)).stdout, '1')
    const b = await c.git.checkout('file:///srv/made', S, { branch: 'other' })
    assert.deepEqual([b.branch, b.targetDir], ['other', '/workspace/made'])
  })

  test('errors have classes', async () => {
    await refused('GIT_BRANCH_NOT_FOUND', () => c.git.checkout('file:///srv/made', S, { branch: 'none', targetDir: '/tmp/a' }))
    await refused('GIT_REPOSITORY_NOT_FOUND', () => c.git.checkout('file:///srv/none', S, { targetDir: '/tmp/b' }))
    await refused('GIT_NETWORK_ERROR', () => c.git.checkout('http://127.0.0.1:9/x.git', S, { targetDir: '/tmp/c' }))
    await refused('INVALID_GIT_URL', () => c.git.checkout('ext::sh -c true', S, { targetDir: '/tmp/d' }))
    await refused('GIT_CLONE_FAILED', () => c.git.checkout('file:///srv/made', S, { targetDir: '/workspace/clone' }))
  })
})

describe('archives', { timeout: 120_000 }, () => {
  const c = client('http')
  test('folders that may not be kept, and archives that are not there', async () => {
    await refused('INVALID_BACKUP_CONFIG', () => c.backup.createArchive('/etc', '/var/backups/x.sqsh', 's'))
    await refused('BACKUP_NOT_FOUND', () => c.backup.restoreArchive('/workspace', '/var/backups/none.sqsh', 's'))
    await refused('BACKUP_CREATE_FAILED', () => c.backup.createArchive('/workspace/none', '/var/backups/x.sqsh', 's'))
    await refused('VALIDATION_FAILED', () => c.backup.uploadParts({ archivePath: '/x', parts: [{ partNumber: 1, url: 'file:///etc/passwd', offset: 0, size: 1 }] }, 's'))
  })
})

describe('archives that go and come', { timeout: 120_000 }, () => {
  const S = 'archives'
  const c = client('http')
  const kept = '/workspace/kept'
  const archive = '/var/backups/one.sqsh'

  test('all but what is left out comes back', async () => {
    await c.commands.execute(`mkdir -p ${kept}/sub ${kept}/node_modules ${kept}/.git; cd ${kept}; echo 1 > a; echo 2 > sub/b.log; echo 3 > sub/c; ln -s a link; chmod 700 sub; echo 4 > node_modules/no`, S)
    const made = await c.backup.createArchive(kept, archive, S, { excludes: ['node_modules', '*.log'], compression: { format: 'gzip' } })
    assert.equal(made.success, true)
    assert.equal((await c.commands.execute(`stat -c %s ${archive}`, S)).stdout, String(made.sizeBytes))
    await c.commands.execute('rm -rf sub; echo changed > a; echo new > new', S)
    const back = await c.backup.restoreArchive(kept, archive, S)
    assert.deepEqual([back.success, back.dir], [true, kept])
    const seen = await c.commands.execute('pwd; ls -A | sort | tr "\\n" " "; cat a; readlink link; ls sub; stat -c %a sub', S)
    assert.equal(seen.stdout, `${kept}\n.git a link sub 1\na\nc\n700`)
  })

  test('its parts are sent from inside', async () => {
    await c.files.writeFile('/tmp/put.py', `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        open("/tmp/part" + self.path[1], "wb").write(body)
        self.send_response(200); self.send_header("ETag", '"e%s"' % self.path[1]); self.send_header("Content-Length", "0"); self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", 8199), H).serve_forever()`, S)
    const server = await c.processes.startProcess('exec python3 /tmp/put.py', S)
    await events(c.ports.watchPort({ port: 8199, mode: 'tcp', processId: server.processId, interval: 100 }))
    await c.commands.execute('head -c 3000 /dev/urandom > /tmp/whole', S)
    const parts = [0, 1, 2].map((i) => ({ partNumber: i + 1, url: `http://127.0.0.1:8199/${i}?X-Signature=a%2Fb`, offset: i * 1000, size: 1000 }))
    const sent = await c.backup.uploadParts({ archivePath: '/tmp/whole', parts }, S)
    assert.deepEqual(sent.parts, [0, 1, 2].map((i) => ({ partNumber: i + 1, etag: `"e${i}"` })))
    assert.equal((await c.commands.execute('cat /tmp/part0 /tmp/part1 /tmp/part2 | cmp - /tmp/whole', S)).exitCode, 0)
    await c.processes.killProcess(server.processId)
    await refused('BACKUP_CREATE_FAILED', () => c.backup.uploadParts({ archivePath: '/tmp/whole', parts: parts.slice(0, 1) }, S))
  })
})

describe('rpc alone', { timeout: 120_000 }, () => {
  let c
  before(() => { c = rpc() })
  after(() => leave('rpc', c))

  test('sessions are listed, tunnels are not there', async () => {
    await c.commands.execute('true', 'listed')
    assert.ok((await c.utils.listSessions()).sessions.includes('listed'))
    assert.deepEqual(await c.tunnels.listTunnels(), [])
    await assert.rejects(async () => await c.tunnels.ensureTunnelRun({ tunnelId: 'a', runId: 'b', mode: 'quick', port: 8080 }), /cloudflared/)
  })

  test('a file that is left half-way does not come to be', async () => {
    await assert.rejects(async () => await c.files.writeFileStream('/workspace/half', new ReadableStream({
      start(to) { to.enqueue(new Uint8Array(1000)) },
      pull(to) { to.error(new Error('no more')) },
    }), 's'), /no more/)
    assert.equal((await c.files.exists('/workspace/half', 's')).exists, false)
  })
})

describe('keys', () => {
  test('no key, no sandbox', async () => {
    const { BOX_URL, BOX_KEY } = process.env
    assert.equal((await fetch(`${BOX_URL}/api/ping`)).status, 401)
    const none = BOX_URL.replace(/[^/]+$/, 'z0000000000000000000')
    assert.equal((await fetch(`${none}/api/ping`, { headers: { Authorization: `Bearer ${BOX_KEY}` } })).status, 404)
  })
})
