// Lets Node load the published package as it is: cloudflare:workers is empty here, and
// imports without an ending get one.
import { register } from 'node:module'

const workers = `
export class DurableObject {}
export class WorkerEntrypoint {}
export class RpcTarget {}
export const env = {}, exports = {}, tracing = {}`

register('data:text/javascript,' + encodeURIComponent(`
const workers = 'data:text/javascript,' + encodeURIComponent(${JSON.stringify(workers)})
export async function resolve(name, context, next) {
  if (name === 'cloudflare:workers') return { url: workers, shortCircuit: true }
  try {
    return await next(name, context)
  } catch (e) {
    if (name.startsWith('.')) return next(name + '.js', context)
    throw e
  }
}`))
