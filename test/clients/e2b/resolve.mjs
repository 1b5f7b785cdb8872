// Node asks the system's resolver, which knows no names beneath localhost.
import dns from 'node:dns'

const lookup = dns.lookup
dns.lookup = (name, options, done) => {
  if (typeof options === 'function') [options, done] = [{}, options]
  if (!name.endsWith('.localhost')) return lookup(name, options, done)
  const found = { address: '127.0.0.1', family: 4 }
  process.nextTick(() => (options?.all ? done(null, [found]) : done(null, found.address, found.family)))
}
