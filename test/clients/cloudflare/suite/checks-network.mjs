import assert from 'node:assert/strict'

const serve = (port) => `node -e "require('http').createServer((q,s)=>s.end(q.method+' '+q.url+' '+(q.headers['x-test']||''))).listen(${port})"`

export async function ports(t) {
  const box = t.box()
  const p = await box.startProcess(serve(8300))
  await p.waitForPort(8300, { mode: 'tcp', timeout: 60000 })
  const direct = await box.containerFetch(new Request('http://localhost/a?b=c', { headers: { 'x-test': 'seen' } }), 8300)
  assert.equal(await direct.text(), 'GET /a?b=c seen')
  const proxied = await box.fetch(new Request('http://localhost/proxy/8300/sw', { method: 'POST', body: 'x' }))
  assert.match(await proxied.text(), /^POST .*sw/)
  const hostname = 'localhost:9999'
  const one = await box.exposePort(8300, { hostname, name: 'web', token: 'mine_1' })
  assert.equal(one.url, `http://8300-${box.testId}-mine_1.localhost:9999/`)
  assert.equal(one.name, 'web')
  assert.equal(await box.isPortExposed(8300), true)
  assert.equal(await box.validatePortToken(8300, 'mine_1'), true)
  assert.equal(await box.validatePortToken(8300, 'other'), false)
  assert.deepEqual((await box.getExposedPorts(hostname)).map((x) => x.port), [8300])
  await assert.rejects(box.exposePort(3000, { hostname }))
  await assert.rejects(box.exposePort(80, { hostname }))
  await box.unexposePort(8300)
  assert.equal(await box.isPortExposed(8300), false)
}

export async function outbound(t) {
  const box = t.box({}, 'Caught')
  const get = async (url, more = '') => (await box.exec(`curl -sS -m 20 ${more} ${url}`)).stdout
  assert.equal(await get('http://one.example/path', '-d body'), 'one POST /path body')
  assert.equal(await get('http://any.example/x'), 'all http://any.example/x')
  assert.equal(await get('https://any.example/x'), 'all https://any.example/x')
  await box.setOutboundByHost('two.example', 'named', { word: 'second' })
  assert.equal(await get('https://two.example/'), 'named second two.example')
  await box.setOutboundByHosts({ 'three.example': { method: 'named', params: { word: 'third' } } })
  assert.equal(await get('http://three.example/'), 'named third three.example')
  await box.removeOutboundByHost('three.example')
  assert.equal(await get('http://three.example/'), 'all http://three.example/')
  await box.setOutboundHandler('named', { word: 'everything' })
  assert.equal(await get('http://any.example/'), 'named everything any.example')
}

export async function hosts(t) {
  const box = t.box({}, 'Caught')
  const status = async (url) => (await box.exec(`curl -sS -m 20 -o /dev/null -w '%{http_code}' ${url}`)).stdout
  assert.equal(await status('http://a.example/'), '200')
  await box.setDeniedHosts(['a.example', '*.bad.example'])
  assert.equal(await status('http://a.example/'), '520')
  assert.equal(await status('https://x.bad.example/'), '520')
  await box.removeDeniedHost('a.example')
  assert.equal(await status('http://a.example/'), '200')
  await box.denyHost('b.example')
  assert.equal(await status('http://b.example/'), '520')
  await box.setAllowedHosts(['c.example'])
  assert.equal(await status('http://a.example/'), '520')
  await box.allowHost('a.example')
  assert.equal(await status('http://a.example/'), '200')
  await box.removeAllowedHost('a.example')
  assert.equal(await status('http://a.example/'), '520')
  assert.equal(await status('http://c.example/'), '200')
}

// There is nothing here that could open one.
export async function tunnels(t) {
  const box = t.box()
  await assert.rejects(box.tunnels.get(8400))
  if (t.transport !== 'rpc') return
  assert.deepEqual(await box.tunnels.list(), [])
  await box.tunnels.destroy(8400).catch(() => {})
}
