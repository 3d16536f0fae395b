'use strict'
const assert = require('node:assert')
const { execFileSync, spawnSync } = require('node:child_process')
const crypto = require('node:crypto')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const test = require('node:test')
const { attempt, permanent, retryAfter, skip, snooze, CANCELLED, STOPPING, TIMED_OUT } = require('..')
const { bundle } = require('../bundle.js')
const { selfSigned } = require('../certificate.js')
const { clean } = require('../outcome.js')
const { Service } = require('../service.js')
const { Session } = require('../session.js')
const { Settings } = require('../settings.js')
const { Task } = require('../task.js')

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

test('mistakes of a declaration are named', () => {
  const work = () => {}
  for (const [wrong, message] of [
    [{ ouput: {} }, /there is no property ouput/], [{ emits: 'next' }, /needs emits as a list/], [{ examples: {} }, /examples as a list/],
    [{ input: { field: 'path', type: 'folder' } }, /an input.type of file, url or line, not folder/]
  ]) assert.throws(() => new Service({ name: 'p', version: '1.0.0', work, ...wrong }), message)
  const program = `require('${path.join(__dirname, '..')}').run({ name: 'p', version: '1.0.0', work: () => {}, emit: [] })`
  const { status, stderr } = spawnSync('node', ['-e', program], { encoding: 'utf8' })
  assert.strictEqual(status, 1)
  assert.match(stderr, /^Error: plugin p: there is no property emit, .*\n    at \[eval\].*\n$/)
})

test('an output that JSON would lose is refused', async () => {
  for (const [value, message] of [
    [{ a: [1, { b: NaN }] }, 'output.a.1.b: NaN is no JSON'], [new Map([[1, 2]]), 'output: a Map is no JSON; use an object or a list'],
    [{ a: new Set() }, 'output.a: a Set is no JSON; use an object or a list'], [{ a: null, b: {}, c: 'null' }, undefined]
  ]) assert.strictEqual((await attempt({ name: 'p', version: '1.0.0', work: () => value }, {})).error, message)
})

test('an item has its trace context', async () => {
  const plugin = { name: 'p', version: '1.0.0', work: ({ traceparent, tracestate }) => ({ traceparent, tracestate }) }
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
  const traced = await attempt(plugin, {}, {}, { traceparent, tracestate: 'congo=1' })
  assert.deepStrictEqual(traced.output, { traceparent, tracestate: 'congo=1' })
  assert.deepStrictEqual((await attempt(plugin, {})).output, {})
})

/** An item as it arrives. */
const wire = (id) => ({ id: String(id), attempt: '1', lock_id: Buffer.alloc(0), timeout_ms: '0' })

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
  const session = new Session({}, ([task], settle) => new Promise((resolve) => work.push(() => resolve(settle(task, { outcome: 'OUTCOME_DONE' })))), { concurrency: 2, progressMs: -1 })
  const s = stream()
  session.serve(s.call)
  await until(() => s.sent.length === 1)
  assert.strictEqual(s.sent[0].credits, 4)
  const items = [1, 2, 3, 4].map(wire)
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

test('no call begins after the end of the stream', async () => {
  for (const batch of [undefined, { most: 3, waitMs: 20 }]) {
    const ends = []
    const run = (tasks, settle) => new Promise((resolve) => ends.push(() => {
      for (const task of tasks) settle(task, { outcome: 'OUTCOME_RELEASED' })
      resolve()
    }))
    const session = new Session({ batch }, run, { concurrency: 1, progressMs: -1 })
    const s = stream()
    session.serve(s.call)
    s.on.data({ items: [1, 2, 3, 4].map(wire), cancels: [] })
    assert.strictEqual(ends.length, 1)
    s.on.cancelled()
    ends[0]()
    await new Promise(setImmediate)
    s.on.data({ items: [5, 6, 7].map(wire), cancels: [] })
    assert.strictEqual(ends.length, 1)
  }
})

test('a config that was closed is neither checked nor worked with', async () => {
  const service = new Service({ name: 'p', version: '1.0.0', work: () => {}, check: () => assert.fail('closed') })
  await service.configure({ config: Buffer.alloc(0), secrets: {} })
  await service.drain({ grace_ms: 0 })
  await assert.rejects(service.checkHealth(), { message: /before Drain/ })
  let refused
  service.process({ emit: (_, err) => { refused = err.message }, on: () => {} })
  assert.match(refused, /Process is called once/)
})

test('a batch waits to be filled, and its places count', async () => {
  const sizes = []
  const run = async (tasks, settle) => {
    sizes.push(tasks.length)
    for (const task of tasks) settle(task, { outcome: 'OUTCOME_DONE' })
    await new Promise(setImmediate) // a call outlasts its last item
    sizes.push('end')
  }
  const session = new Session({ batch: { most: 3, waitMs: 20 } }, run, { concurrency: 1, progressMs: -1 })
  const s = stream()
  session.serve(s.call)
  await until(() => s.sent.length === 1)
  assert.strictEqual(s.sent[0].credits, 6)
  const began = Date.now()
  s.on.data({ items: [1, 2].map(wire), cancels: [] })
  s.on.data({ items: [], cancels: [{ id: '1', attempt: '1', reason: 'REASON_STOPPING' }] })
  assert.deepStrictEqual(sizes, [])
  await until(() => sizes.length === 2)
  assert.ok(Date.now() - began >= 19)
  s.on.data({ items: [3, 4, 5, 6].map(wire), cancels: [] })
  await until(() => sizes.length === 6)
  assert.deepStrictEqual(sizes, [1, 'end', 3, 'end', 1, 'end'])
  s.on.data({ items: [wire(7)], cancels: [] })
  s.on.data({ items: [], cancels: [{ id: '7', attempt: '1', reason: 'REASON_STOPPING' }] })
  await new Promise((resolve) => setTimeout(resolve, 40))
  assert.strictEqual(sizes.length, 6)
  s.on.data({ items: [wire(8)], cancels: [] })
  let left
  session.drain(0).then((ids) => { left = ids })
  await until(() => {
    s.leave.splice(0).forEach((leave) => leave())
    return left
  })
  assert.deepStrictEqual(left, [])
  assert.deepStrictEqual(s.sent.at(-1).results.at(-1), { outcome: 'OUTCOME_RELEASED', id: '8', attempt: '1', lock_id: Buffer.alloc(0) })
})

/** Works payloads in one call of a batch. */
async function batched(work, payloads, ...stops) {
  const service = new Service({ name: 'p', version: '1.0.0', payload: { properties: { n: { type: 'number' } } }, batch: { work } })
  await service.configure({ config: Buffer.alloc(0), secrets: {} })
  const tasks = payloads.map((p, id) => new Task({ ...wire(id), payload: Buffer.from(JSON.stringify(p)) }, [], -1, () => {}))
  const results = {}
  stops.forEach((reason, i) => reason && tasks[i].stop(reason))
  await service.work(tasks, (task, result) => { results[task.wire.id] = result })
  return tasks.map(({ wire }) => `${results[wire.id].outcome.slice(8)} ${results[wire.id].code ?? results[wire.id].output ?? ''}`)
}

test('an item of a batch is settled by itself, the rest by the function', async () => {
  const settle = (items) => {
    for (const { payload: { n }, settle } of items) {
      if (n === 1) settle(items.length)
      if (n === 2) { settle(permanent(Object.assign(new Error('no'), { code: 'two' }))); settle('again') }
    }
  }
  assert.deepStrictEqual(await batched(settle, [{ n: 1 }, { n: 2 }, { n: 3 }, { m: 1 }]),
    ['DONE 3', 'FAILED two', 'FAILED unsettled', 'FAILED payload'])
  const rest = async (items) => { items[1].settle(); throw Object.assign(new Error('all'), { code: 'rest' }) }
  assert.deepStrictEqual(await batched(rest, [{}, {}, {}], null, null, CANCELLED), ['FAILED rest', 'DONE ', 'CANCELLED rest'])
  assert.deepStrictEqual(await batched(() => assert.fail('no item fits'), [{ m: 1 }]), ['FAILED payload'])
  assert.throws(() => new Service({ name: 'p', version: '1.0.0' }), /one of work and batch/)
  assert.throws(() => new Service({ name: 'p', version: '1.0.0', batch: { work: settle, most: 0 } }), /a most of 1 or more/)
})

test('what would be another plugin than its author means is refused', () => {
  const make = (more) => () => new Service({ name: 'p', version: '1.0.0', work: () => {}, ...more })
  const token = { type: 'string', writeOnly: true }
  make({ onLost: 'doubt', concurrency: 1, config: { properties: { a: token, b: { type: 'object', properties: { token } } } } })()
  const data = { default: token, enum: [token], const: token, examples: [token] }
  make({ config: { properties: { default: token, data } } })()
  assert.throws(make({ onLost: 'Doubt' }), /an onLost of repeat or doubt/)
  for (const [given, want] of [[null, 8], [2.5, 2]]) {
    const { concurrency, on_lost } = make({ onLost: null, concurrency: given })().describe()
    assert.deepStrictEqual([concurrency, on_lost], [want, 'ON_LOST_REPEAT'])
  }
  for (const concurrency of [0, -1, NaN, 0.5]) assert.throws(make({ concurrency }), /a concurrency of 1 or more/)
  for (const field of [
    { type: 'array', items: { type: 'object', properties: { token } } },
    { type: 'object', additionalProperties: token }, { anyOf: [token] }, { $defs: { default: token } }
  ]) {
    assert.throws(make({ config: { properties: { field } } }), /each secret \(writeOnly\) as a field/)
  }
  for (const ms of [NaN, undefined, null]) assert.throws(() => snooze(ms, 'why'), /a delay is a number/)
  assert.throws(() => snooze(1, 'no code', 3), /atMost is 1 to 100/)
  assert.throws(() => retryAfter('soon', new Error('why')), /a delay is a number/)
  assert.strictEqual(snooze(0, 'why').result.delay_ms, 1000)
  assert.strictEqual(snooze(Infinity, 'why').result.delay_ms, Number.MAX_SAFE_INTEGER)
})

test('formats are notes, but that of durations', () => {
  const settings = new Settings({ properties: {
    url: { type: 'string', format: 'uri' }, at: { type: 'string', format: 'date-time' }, format: { type: 'string' }, wait: { type: 'string', format: 'go-duration' }
  } })
  const fits = (value) => settings.read(Buffer.from(JSON.stringify(value))).problems.length === 0
  assert.ok(fits({ url: 'any text', at: 'soon', format: 'x' }))
  for (const wait of ['30s', '1h30m', '-1.5h', '+2d', '.5w', '1.s', '0']) assert.ok(fits({ wait }), wait)
  for (const wait of ['', '5', 's', '1 s', '1x', '00', '1h0', '00h'.repeat(26) + 'x']) assert.ok(!fits({ wait }), wait)
})

test('what is wrong with one item of a batch, or with an error, costs no other', async () => {
  const emits = (items) => { items[0].emit({ kind: 'none', key: 'k' }) }
  assert.deepStrictEqual(await batched(emits, [{}, {}]), ['FAILED emit_refused', 'FAILED emit_refused'])
  const finals = []
  const service = new Service({ name: 'p', version: '1.0.0', onLost: 'doubt', batch: { work: emits } })
  await service.work([1, 2].map((id) => new Task({ id, payload: Buffer.from('{}') }, [], 0, () => {})),
    (task, { final, ending }) => finals.push([final, ending]))
  assert.deepStrictEqual(finals, [[true, undefined], [undefined, 'ENDING_PANICKED']])
  assert.deepStrictEqual(await batched(() => {}, [{}, {}], STOPPING), ['RELEASED unsettled', 'FAILED unsettled'])
  const promise = (items) => { items[0].settle(Promise.resolve(5)) }
  assert.deepStrictEqual(await batched(promise, [{}]), ['FAILED '])
  const odd = () => { throw Object.defineProperty(new Error('odd'), 'code', { get: () => { throw new Error('no code') } }) }
  assert.deepStrictEqual(await batched(odd, [{}]), ['FAILED '])
})

test('the signal of a batch is that of what is left of it', async () => {
  const signals = async (items, { signal }) => {
    assert.deepStrictEqual([items[0].signal.reason, signal.aborted], [STOPPING, false])
    items[1].settle()
    assert.strictEqual(signal.reason, STOPPING)
    throw signal.reason
  }
  assert.deepStrictEqual(await batched(signals, [{}, {}], STOPPING), ['RELEASED ', 'DONE '])
  const plugin = { name: 'p', version: '1.0.0', timeoutMs: 1, batch: { work: ([item], { signal }) => {
    item.settle('early')
    return new Promise((resolve) => signal.addEventListener('abort', resolve))
  } } }
  assert.strictEqual((await attempt(plugin, {})).output, 'early')
})

test('one file is made of modules', () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'bundle-'))
  const write = (name, text) => fs.writeFileSync(path.join(dir, name), text)
  write('program', "#!/usr/bin/env node\n'use strict'\nconst { f } = require (`./a.js`)\nmodule.exports = [f(), require('./b.json'), require('node:path').sep, require.main === module]\nconsole.log(JSON.stringify(module.exports))")
  write('a.js', "exports.f = () => require('./c.js')\nexports.g = 'g'")
  write('c.js', "module.exports = require('./a.js').g // a circle")
  write('b.json', '{"b":1,"__proto__":2}')
  write('one', bundle(path.join(dir, 'program')))
  for (const name of ['program', 'a.js', 'b.json', 'c.js']) fs.rmSync(path.join(dir, name))
  assert.strictEqual(execFileSync(process.execPath, [path.join(dir, 'one')], { encoding: 'utf8' }), '["g",{"b":1,"__proto__":2},"/",true]\n')
  write('program', "require('./none.js')")
  assert.throws(() => bundle(path.join(dir, 'program')), /none\.js/)
  write('program', "require('./x.mjs')")
  write('x.mjs', 'export default 1')
  assert.throws(() => bundle(path.join(dir, 'program')), /x\.mjs cannot be taken/)
  write('program', 'export default 1')
  assert.throws(() => bundle(path.join(dir, 'program')), SyntaxError)
  fs.rmSync(dir, { recursive: true })
})
