// The package's public methods, as its declarations have them.
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

const dist = join(import.meta.dirname, 'node_modules', '@cloudflare', 'sandbox', 'dist')

// notTried says why a method is called by no check. docs/from-cloudflare.md tells users.
const notTried = new Map(Object.entries({
  'Sandbox.configure': 'getSandbox calls it',
  'Sandbox.callTunnels': 'the package itself calls it, for tunnels',
  'Sandbox.execWithSessionToken': 'the package itself calls it, for exec',
  'Sandbox.execStreamWithSessionToken': 'the package itself calls it, for execStream',
  'Sandbox.onStart': 'called by the package',
  'Sandbox.onStop': 'called by the package',
  'Sandbox.onError': 'called by the package',
  'Sandbox.onActivityExpired': 'called by the package',
}))

// bodyOf is what a declaration has between its braces, without comments.
function bodyOf(text, head) {
  const begin = text.indexOf('{', text.indexOf(head) + head.length)
  let depth = 0
  for (let i = begin; i < text.length; i++) {
    if (text[i] === '{') depth++
    if (text[i] === '}' && --depth === 0) return text.slice(begin + 1, i).replace(/\/\*[\s\S]*?\*\//g, '')
  }
  throw new Error(`no ${head}`)
}

// methodsOf lists the names at the outermost level that are followed by a parenthesis.
function methodsOf(body) {
  const names = new Set()
  for (const line of body.split('\n')) {
    const m = /^ {2}(?!private |protected |constructor|static )(?:get )?([A-Za-z]\w*)\(/.exec(line)
    if (m) names.add(m[1])
  }
  return names
}

// missing lists the public methods that are neither among used nor explained.
export async function missing(used) {
  const file = (await readdir(dist)).find((name) => /^sandbox-.*\.d\.ts$/.test(name))
  const text = await readFile(join(dist, file), 'utf8')
  const all = []
  for (const [name, head] of [['Sandbox', 'declare class Sandbox<Env = unknown> extends Container<Env> implements ISandbox '], ['ExecutionSession', 'interface ExecutionSession '], ['Process', 'interface Process ']]) {
    for (const method of methodsOf(bodyOf(text, head.trimEnd()))) all.push(`${name}.${method}`)
  }
  if (all.length < 80) throw new Error(`only ${all.length} methods were found`)
  const has = new Set(used)
  return all.filter((m) => !has.has(m) && !notTried.has(m)).sort()
}
