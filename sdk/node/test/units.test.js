'use strict'
const assert = require('node:assert')
const crypto = require('node:crypto')
const test = require('node:test')
const { attempt, permanent, skip, CANCELLED, TIMED_OUT } = require('..')
const { selfSigned } = require('../certificate.js')
const { clean } = require('../outcome.js')
const { Session } = require('../session.js')
const { Settings } = require('../settings.js')

const until = async (ok) => { while (!ok()) await new Promise(setImmediate) }

test('a certificate is one', () => {
  const { key, cert, raw } = selfSigned()
  const read = new crypto.X509Certificate(cert)
  assert.ok(read.raw.equals(raw))
  assert.ok(read.verify(read.publicKey))
  assert.ok(read.checkPrivateKey(crypto.createPrivateKey(key)))
  assert.strictEqual(read.checkHost('localhost'), 'localhost')
  assert.notStrictEqual(new crypto.X509Certificate(selfSigned().raw).serialNumber, read.serialNumber)
})

test('text is cut, but not within a letter', () => {
  assert.strictEqual(clean('aä€😀', 6), 'aä€')
  assert.strictEqual(clean('aä€😀', 9), 'aä€')
  assert.strictEqual(clean('a\0b', 9), 'a\uFFFDb')
  assert.strictEqual(clean('\ud800', 9), '\uFFFD')
})

test('settings have defaults and name fields', () => {
  const settings = new Settings({
    properties: {
      host: { type: 'string', default: 'here' },
      auth: { type: 'object', additionalProperties: false, properties: { token: { type: 'string', writeOnly: true }, 'a/b': { enum: [1, 2] } } },
      wait: { type: 'string', format: 'go-duration', default: '30s', 'x-ledgerd-tune': true }
    },
    required: ['wait']
  })
  assert.deepStrictEqual(settings.secrets(), ['auth.token'])
  const read = (value, secrets) => settings.read(Buffer.from(JSON.stringify(value)), secrets)
  assert.deepStrictEqual(read({}, { 'auth.token': 's' }).value, { host: 'here', auth: { token: 's' }, wait: '30s' })
  for (const [value, field, secrets] of [
    [{ auth: { 'a/b': 3 } }, 'auth.a/b'], [{ auth: { x: 1 } }, 'auth.x'], [{ wait: 'soon' }, 'wait'], [[], ''], [{}, 'host', { host: 's' }]
  ]) assert.strictEqual(read(value, secrets).problems[0].field, field, JSON.stringify(value))
  for (const problem of read({}, { 'auth.token': 's3cret', host: 's3cret' }).problems) assert.ok(!problem.message.includes('s3cret'))
})

test('an attempt is worked without ledgerd', async () => {
  const plugin = {
    name: 'p',
    version: '1.0.0',
    payload: { properties: { n: { type: 'number', default: 2 } } },
    config: { properties: { by: { type: 'number', default: 3 } } },
    emits: ['next'],
    open: ({ by }) => ({ by }),
    work (item, { state, signal }) {
      signal.throwIfAborted()
      item.progress(1, 2, 'steps')
      item.emit({ kind: 'next', key: item.payload.n === 1 ? '' : 'k' })
      item.log('at work', { n: item.payload.n })
      if (item.payload.n === 0) throw skip('nothing')
      if (item.payload.n < 0) throw permanent(new Error('negative'))
      return item.payload.n * state.by
    }
  }
  const done = await attempt(plugin, {})
  assert.strictEqual(done.output, 6)
  assert.deepStrictEqual(done.progress, [{ done: 1, total: 2, unit: 'steps' }])
  assert.match(done.log, /at work n=2\n$/)
  assert.strictEqual((await attempt(plugin, { n: 0 })).emit.length, 1)
  assert.deepStrictEqual((await attempt(plugin, { n: -1 })).emit, [])
  const refused = await attempt(plugin, { n: 1 })
  assert.deepStrictEqual([refused.final, refused.code], [true, 'emit_refused'])
  const late = () => { throw new DOMException('The operation was aborted', 'AbortError') }
  assert.strictEqual((await attempt({ ...plugin, work: late }, {}, {}, { signal: AbortSignal.abort(TIMED_OUT) })).error, TIMED_OUT.message)
  assert.strictEqual((await attempt(plugin, { m: 1 })).code, 'payload')
  assert.strictEqual((await attempt(plugin, {}, {}, { signal: AbortSignal.abort(CANCELLED) })).outcome, 'OUTCOME_CANCELLED')
  await assert.rejects(attempt(plugin, {}, { by: 'x' }), /by: must be number/)
})

test('an item has its trace context', async () => {
  const plugin = { name: 'p', version: '1.0.0', work: ({ traceparent, tracestate }) => ({ traceparent, tracestate }) }
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
  const traced = await attempt(plugin, {}, {}, { traceparent, tracestate: 'congo=1' })
  assert.deepStrictEqual(traced.output, { traceparent, tracestate: 'congo=1' })
  assert.deepStrictEqual((await attempt(plugin, {})).output, {})
})

/** A stream of which messages leave when the test says so. */
function stream() {
  const on = {}
  const sent = []
  const leave = []
  return {
    on, sent, leave,
    call: { on: (name, f) => { on[name] = f }, write: (m, left) => { sent.push(m); leave.push(left) }, end: () => { on.ended = true } }
  }
}

test('no more is granted than the window, and results are gathered', async () => {
  const work = []
  const session = new Session({}, (task) => new Promise((resolve) => work.push(() => resolve({ outcome: 'OUTCOME_DONE', task }))), { concurrency: 2, progressMs: -1 })
  const s = stream()
  session.serve(s.call)
  await until(() => s.sent.length === 1)
  assert.strictEqual(s.sent[0].credits, 4)
  const items = [1, 2, 3, 4].map((id) => ({ id: String(id), attempt: '1', lock_id: Buffer.alloc(0), timeout_ms: '0' }))
  s.on.data({ items, cancels: [{ id: '4', attempt: '1', reason: 'REASON_STOPPING' }] })
  assert.strictEqual(work.length, 2)
  await new Promise(setImmediate)
  assert.strictEqual(s.sent.length, 1) // the first message has not left yet
  work.splice(0).forEach((end) => end())
  await until(() => work.length === 1)
  s.leave.shift()()
  assert.deepStrictEqual(s.sent[1].results.map((r) => r.id), ['4', '1', '2'])
  assert.strictEqual(s.sent[1].credits, 3)
  s.on.end()
  work.pop()()
  s.leave.shift()()
  await until(() => s.sent.length === 3)
  assert.ok(!s.on.ended)
  s.leave.shift()()
  await until(() => s.on.ended)
})
