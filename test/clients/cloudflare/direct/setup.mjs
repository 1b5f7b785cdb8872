import assert from 'node:assert/strict'
import { newWebSocketRpcSession } from 'capnweb'
import { SandboxClient, parseSSEStream } from '@cloudflare/sandbox'

const { BOX_URL, BOX_KEY } = process.env
const socket = (path) => `${BOX_URL.replace(/^http/, 'ws')}${path}?token=${BOX_KEY}`

/** The published client, over HTTP or over the WebSocket. */
export function client(transportMode) {
  return new SandboxClient({ baseUrl: BOX_URL, transportMode, wsUrl: socket('/ws'), retryTimeoutMs: 1000,
    defaultHeaders: { Authorization: `Bearer ${BOX_KEY}` } })
}

/** The object that the client speaks to where it is told to use RPC. */
export function rpc() {
  return newWebSocketRpcSession(socket('/rpc'))
}

/** A terminal's WebSocket. */
export const terminal = (session) => new WebSocket(`${socket('/ws/pty')}&sessionId=${session}&cols=100&rows=30`)

/** A sandbox with all the methods that the ways have in common. */
export const ways = {
  http: () => client('http'),
  websocket: () => client('websocket'),
  rpc,
}

/** Ends a way's connection. */
export const leave = (way, c) => (way === 'rpc' ? c[Symbol.dispose]() : c.disconnect())

/** Fails unless an operation is refused with a code. */
export async function refused(code, run) {
  await assert.rejects(async () => { await run() }, (e) => {
    assert.ok(e.code === code || String(e.message).includes(`"code":"${code}"`), `${e.name} ${e.code}: ${e.message}`)
    return true
  })
}

/** Reads a stream of events until one, or all so far, is enough, or its end. */
export async function events(stream, until) {
  const all = []
  for await (const e of parseSSEStream(await stream)) {
    all.push(e)
    if (until?.(e, all)) break
  }
  return all
}

/** What a stream of events has said on one output. */
export const said = (all, type) => all.filter((e) => e.type === type).map((e) => e.data).join('')
