// The published RPC package against the server's side of it.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { describe, test } from 'node:test'

for (const name of ['capnweb', 'capnweb-next']) {
  const { newWebSocketRpcSession, RpcTarget } = await import(name)
  const testing = (what, use) => test(what, async () => {
    const api = newWebSocketRpcSession(process.env.RPC_URL)
    try {
      await use(api)
    } finally {
      api[Symbol.dispose]()
    }
  })

  describe(name, { timeout: 300_000 }, () => {
    testing('values come back as they went', async (api) => {
      for (const v of [null, true, 1.5, -0.25, Infinity, -Infinity, 'ä\u0000€😀', [], [[]], [1, [2, [3]]], { a: { b: [{}] } },
        12345678901234567890n, new Date(1234567890123), new Uint8Array([0, 255, 1]), undefined, { f: undefined }, '["not", "special"]']) {
        const got = await api.values.echo(v)
        if (v instanceof Uint8Array) assert.deepEqual([...got], [...v])
        else assert.deepEqual(got, v)
      }
      assert.ok(Number.isNaN(await api.values.echo(NaN)))
      const e = Object.assign(new TypeError('text'), { code: 'X', details: { a: [1] } })
      const got = await api.values.echo(e)
      assert.ok(got instanceof TypeError)
      assert.deepEqual([got.message, got.code, got.details], ['text', 'X', { a: [1] }])
    })

    testing('errors have their properties', async (api) => {
      await assert.rejects(async () => await api.values.fail(), (e) => e.message === 'no such file' && e.code === 'FILE_NOT_FOUND' && e.details.path === '/x')
      await assert.rejects(async () => await api.values.none(), TypeError)
      assert.equal(await api.values.echo('still there'), 'still there')
    })

    testing('results are used before they are known', async (api) => {
      const later = api.values.echo({ list: [{ name: 'deep' }] })
      assert.equal(await later.list[0].name, 'deep')
      assert.equal(await api.values.echo(api.values.echo(later.list[0].name)), 'deep')
      assert.equal(await api.values.maker().call('x'), 'made x')
    })

    testing('many calls at once', async (api) => {
      const all = await Promise.all(Array.from({ length: 1000 }, (_, i) => api.values.echo(i)))
      assert.deepEqual(all, Array.from({ length: 1000 }, (_, i) => i))
    })

    testing('a stream comes whole', async (api) => {
      const size = 5_000_000
      const sum = createHash('sha256')
      let n = 0
      for await (const part of await api.streams.down(size)) {
        sum.update(part)
        n += part.length
      }
      assert.equal(n, size)
      assert.equal(sum.digest('hex'), await api.streams.sum(size))
      await assert.rejects(async () => { for await (const _ of await api.streams.broken()); }, /disk/)
    })

    testing('a stream that is left ends', async (api) => {
      const reader = (await api.streams.endless()).getReader()
      await reader.read()
      await reader.cancel()
      await api.streams.left()
    })

    testing('a stream goes whole', async (api) => {
      const part = new Uint8Array(100_000).fill(7)
      let left = 50
      const body = new ReadableStream({ pull(c) { left-- > 0 ? c.enqueue(part) : c.close() } })
      assert.equal(await api.streams.up(body), 5_000_000)
      const bad = new ReadableStream({ pull(c) { c.error(new Error('no more')) } })
      await assert.rejects(async () => await api.streams.up(bad), /no more/)
    })

    testing('functions and objects are called back', async (api) => {
      const got = []
      class Target extends RpcTarget { add(a, b) { return a + b } }
      const answer = await api.values.callback((i) => { got.push(i); return i * 2 }, new Target())
      assert.deepEqual(got, [0, 1, 2])
      assert.deepEqual(answer, [0, 2, 4, 7])
      await assert.rejects(async () => await api.values.callback(() => { throw new Error('from there') }, new Target()), /from there/)
    })
  })
}
