// Every client class, on every way to the server.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { collectFile, streamFile } from '@cloudflare/sandbox'

import { events, leave, refused, said, ways } from './setup.mjs'

for (const [way, open] of Object.entries(ways)) {
  describe(way, { timeout: 300_000 }, () => {
    const S = `sandbox-${way}`
    const dir = `/workspace/${way}`
    let c
    before(async () => {
      c = open()
      await c.commands.execute(`mkdir -p ${dir} && cd ${dir}`, S)
    })
    after(() => leave(way, c))

    test('utilities', async () => {
      assert.equal(await c.utils.ping(), 'healthy')
      assert.equal(await c.utils.getVersion(), '0.12.10')
      assert.deepEqual(await c.utils.getCommands(), [])
    })

    test('commands', async () => {
      const r = await c.commands.execute('echo out; echo err >&2; id -un; pwd; (exit 3)', S)
      assert.deepEqual([r.stdout, r.stderr, r.exitCode, r.success], [`out\nroot\n${dir}`, 'err', 3, false])
      await c.commands.execute('export A=1; b=2; f() { echo "f $1"; }', S)
      assert.equal((await c.commands.execute('echo $A$b; f x', S)).stdout, '12\nf x')
      assert.equal((await c.commands.execute('echo $A $X; pwd', S, { env: { X: "it's" }, cwd: '/tmp' })).stdout, "1 it's\n/tmp")
      assert.equal((await c.commands.execute('echo "[$X]"; pwd', S)).stdout, `[]\n${dir}`)
      const fresh = await c.commands.execute('echo "[$A]"; pwd', '__DISABLE_SESSION__')
      assert.equal(fresh.stdout, '[]\n/workspace')
      assert.equal((await c.commands.execute('sleep 100', '__DISABLE_SESSION__', { timeoutMs: 300 })).exitCode, 124)
      assert.equal((await c.commands.execute('no-such-command', S)).exitCode, 127)
      await refused('INVALID_COMMAND', () => c.commands.execute('', S))
    })

    test('a stream of a command', async () => {
      const all = await events(c.commands.executeStream('f y; echo e >&2; pwd; A=changed; exit 5', S, { env: { Z: '1' } }))
      assert.equal(all[0].type, 'start')
      assert.equal(said(all, 'stdout'), `f y\n${dir}\n`)
      assert.equal(said(all, 'stderr'), 'e\n')
      assert.equal(all.at(-1).type, 'complete')
      assert.equal(all.at(-1).exitCode, 5)
      assert.equal((await c.commands.execute('echo $A', S)).stdout, '1')
      await c.commands.execute('big=$(head -c 200000 /dev/zero | tr "\\0" x)', `big-${way}`)
      const big = await events(c.commands.executeStream('echo ${#big}; ls /tmp/.cf-*', `big-${way}`))
      assert.equal(said(big, 'stdout'), '200000\n')
    })

    test('a session that ends', async () => {
      const s = `ends-${way}`
      await c.commands.execute('V=1', s)
      await refused('SESSION_TERMINATED', () => c.commands.execute('exit 4', s))
      assert.equal((await c.commands.execute('echo "[$V]"', s)).stdout, '[]')
      await refused('COMMAND_EXECUTION_ERROR', () => c.commands.execute('sleep 100', s, { timeoutMs: 300 }))
      assert.equal((await c.commands.execute('echo there', s)).stdout, 'there')
    })

    test('sessions', async () => {
      const id = `made-${way}`
      const made = await c.utils.createSession({ id, env: { E: 'v w' }, cwd: '/tmp' })
      assert.equal(made.success, true)
      assert.equal((await c.commands.execute('echo $E; pwd', id)).stdout, 'v w\n/tmp')
      await refused('SESSION_ALREADY_EXISTS', () => c.utils.createSession({ id }))
      await c.processes.startProcess('sleep 500', id, { processId: `of-${way}` })
      assert.equal((await c.utils.deleteSession(id)).success, true)
      assert.equal((await c.processes.getProcess(`of-${way}`)).process.status, 'killed')
    })

    test('processes', async () => {
      await c.commands.execute('shown=yes', S)
      const p = await c.processes.startProcess('echo $shown $P; echo e >&2; exec sleep 500', S, { processId: `p-${way}`, env: { P: 'q' } })
      assert.equal(p.processId, `p-${way}`)
      // The outputs are two pipes: either may be heard first.
      const both = (_, all) => said(all, 'stdout').endsWith('\n') && said(all, 'stderr').endsWith('\n')
      const first = await events(c.processes.streamProcessLogs(p.processId), both)
      assert.deepEqual([said(first, 'stdout'), said(first, 'stderr')], ['yes q\n', 'e\n'])
      const logs = await c.processes.getProcessLogs(p.processId)
      assert.deepEqual([logs.stdout, logs.stderr], ['yes q\n', 'e\n'])
      const listed = (await c.processes.listProcesses()).processes.find((x) => x.id === p.processId)
      assert.deepEqual([listed.status, listed.pid], ['running', p.pid])
      await c.processes.killProcess(p.processId)
      assert.equal((await c.processes.getProcess(p.processId)).process.status, 'killed')
      const quick = await c.processes.startProcess('echo done; exit 2', S)
      const end = (await events(c.processes.streamProcessLogs(quick.processId))).at(-1)
      assert.deepEqual([end.type, end.exitCode], ['exit', 2])
      const over = (await c.processes.getProcess(quick.processId)).process
      assert.deepEqual([over.status, over.exitCode, over.command], ['failed', 2, 'echo done; exit 2'])
      await refused('PROCESS_NOT_FOUND', () => c.processes.getProcess('none'))
      await refused('PROCESS_NOT_FOUND', () => c.processes.killProcess('none'))
    })

    test('ports', async () => {
      const port = { http: 8101, websocket: 8102, rpc: 8103 }[way]
      const p = await c.processes.startProcess(`sleep 0.3; exec python3 -m http.server ${port} --bind 127.0.0.1`, S)
      const ready = (await events(c.ports.watchPort({ port, mode: 'http', path: '/', statusMin: 200, statusMax: 299, processId: p.processId, interval: 100 }))).at(-1)
      assert.deepEqual([ready.type, ready.statusCode], ['ready', 200])
      assert.equal((await events(c.ports.watchPort({ port, mode: 'tcp', interval: 100 }))).at(-1).type, 'ready')
      await c.processes.killProcess(p.processId)
      const dead = await c.processes.startProcess('exit 6', S)
      const last = (await events(c.ports.watchPort({ port, mode: 'tcp', processId: dead.processId, interval: 100 }))).at(-1)
      assert.deepEqual([last.type, last.exitCode], ['process_exited', 6])
    })

    test('files', async () => {
      const f = c.files
      await f.writeFile('a.txt', 'text ä', S)
      const a = await f.readFile(`${dir}/a.txt`, S)
      assert.deepEqual([a.content, a.encoding, a.mimeType, a.size], ['text ä', 'utf-8', 'text/plain;charset=utf-8', 7])
      await f.writeFile(`${dir}/b.png`, Buffer.from([137, 80, 78, 71, 0, 255]).toString('base64'), S, { encoding: 'base64' })
      const b = await f.readFile('b.png', S)
      assert.deepEqual([b.encoding, b.mimeType, b.isBinary, Buffer.from(b.content, 'base64').length], ['base64', 'image/png', true, 6])
      assert.equal((await f.readFile('a.txt', S, { encoding: 'base64' })).content, Buffer.from('text ä').toString('base64'))
      await f.mkdir('x/y', S, { recursive: true })
      await refused('FILE_EXISTS', () => f.mkdir('x', S))
      await refused('FILE_NOT_FOUND', () => f.mkdir('n/m', S))
      await f.renameFile('a.txt', 'x/c.txt', S)
      await f.moveFile('x/c.txt', 'x/y/d.txt', S)
      assert.equal((await f.exists('x/y/d.txt', S)).exists, true)
      assert.equal((await f.exists('a.txt', S)).exists, false)
      await f.writeFile('.hidden', '', S)
      const names = (l) => l.files.map((i) => i.relativePath).sort()
      assert.deepEqual(names(await f.listFiles('.', S)), ['b.png', 'x'])
      assert.deepEqual(names(await f.listFiles(dir, S, { recursive: true, includeHidden: true })), ['.hidden', 'b.png', 'x', 'x/y', 'x/y/d.txt'])
      const info = (await f.listFiles('x/y', S)).files[0]
      assert.deepEqual([info.name, info.absolutePath, info.type, info.size, info.mode, info.permissions],
        ['d.txt', `${dir}/x/y/d.txt`, 'file', 7, 'rw-r--r--', { readable: true, writable: true, executable: false }])
      await refused('IS_DIRECTORY', () => f.deleteFile('x', S))
      await refused('IS_DIRECTORY', () => f.readFile('x', S))
      await refused('NOT_DIRECTORY', () => f.readFile('b.png/x', S))
      await refused('FILE_NOT_FOUND', () => f.readFile('none', S))
      await refused('FILE_NOT_FOUND', () => f.deleteFile('none', S))
      await refused('VALIDATION_FAILED', () => f.readFile('a\0b', S))
      await f.deleteFile('b.png', S)
      assert.equal((await f.exists('b.png', S)).exists, false)
    })

    test('files as streams', async () => {
      await c.commands.execute('head -c 3000000 /dev/urandom > big.bin; seq 100000 > big.txt; truncate -s 40M huge', S)
      const bin = await collectFile(await c.files.readFileStream(`${dir}/big.bin`, S))
      const sum = (await c.commands.execute('sha256sum big.bin', S)).stdout.split(' ')[0]
      const { createHash } = await import('node:crypto')
      assert.equal(createHash('sha256').update(bin.content).digest('hex'), sum)
      const txt = await collectFile(await c.files.readFileStream(`${dir}/big.txt`, S))
      assert.equal(txt.content.length, 588895)
      let n = 0
      for await (const part of streamFile(await c.files.readFileStream(`${dir}/big.bin`, S))) n += part.length
      assert.equal(n, 3000000)
      await refused('FILE_TOO_LARGE', () => c.files.readFile('huge', S))
      await refused('FILE_NOT_FOUND', async () => { await events(c.files.readFileStream('none', S)) })
      if (way !== 'rpc') return
      const whole = await c.files.readFile(`${dir}/big.bin`, S, { encoding: 'none' })
      assert.equal(whole.size, 3000000)
      const parts = whole.content.getReader()
      const body = new ReadableStream({
        async pull(to) {
          const { done, value } = await parts.read()
          done ? to.close() : to.enqueue(value)
        },
      })
      const up = await c.files.writeFileStream(`${dir}/copy.bin`, body, S)
      assert.equal(up.bytesWritten, 3000000)
      assert.equal((await c.commands.execute('sha256sum copy.bin', S)).stdout.split(' ')[0], sum)
    })

    test('watches', async () => {
      await c.commands.execute('mkdir -p w/node_modules', S)
      const stream = await c.watch.watch({ path: `${dir}/w`, recursive: true, sessionId: S })
      const got = []
      const reading = events(stream, (e) => {
        if (e.type === 'event') got.push(`${e.eventType} ${e.path.slice(dir.length + 3)}`)
        return got.includes('delete last')
      })
      await c.commands.execute('cd w; echo 1 > node_modules/no; echo 1 > one; sleep 0.2; echo 2 >> one; sleep 0.2; mv one two; touch last; sleep 0.2; rm last; cd ..', S)
      await reading
      for (const want of ['create one', 'modify one', 'move_from one', 'move_to two', 'create last']) assert.ok(got.includes(want), `${want} in ${got}`)
      assert.ok(!got.some((e) => e.includes('node_modules/no')), String(got))
      await refused('FILE_NOT_FOUND', () => c.watch.watch({ path: '/none' }))
      const first = await c.watch.checkChanges({ path: `${dir}/w` })
      assert.equal(first.status, 'unchanged')
      assert.equal((await c.watch.checkChanges({ path: `${dir}/w`, since: first.version })).status, 'unchanged')
      await c.commands.execute('echo 2 > w/node_modules/no', S)
      assert.equal((await c.watch.checkChanges({ path: `${dir}/w`, since: first.version })).status, 'unchanged')
      await c.commands.execute('echo 3 > w/two', S)
      const then = await c.watch.checkChanges({ path: `${dir}/w`, since: first.version })
      assert.equal(then.status, 'changed')
      assert.equal((await c.watch.checkChanges({ path: `${dir}/w`, since: then.version })).status, 'unchanged')
      assert.equal((await c.watch.checkChanges({ path: dir, since: then.version })).status, 'resync')
    })
  })
}
