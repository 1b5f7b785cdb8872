// A server of a test's own: it speaks the protocol line by line, and needs nothing else.
import { createInterface } from 'node:readline'

let notes = 0
const tools = ['note', 'die'].map((name) => ({ name, description: name, inputSchema: { type: 'object' } }))
const text = (text) => ({ content: [{ type: 'text', text }] })

const answers = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'notes', version: '1' } }),
  'tools/list': () => ({ tools }),
  'tools/call': ({ name }) => (name === 'die' ? process.exit(3) : text(`${process.env.GREETING} ${++notes}`)),
}

console.log('this line is no message')
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: answers[method]?.(params) ?? {} }))
})
