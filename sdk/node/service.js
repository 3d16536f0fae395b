'use strict'
/* The calls of the protocol: what the plugin is, its config, the stream, the end. */
const grpc = require('@grpc/grpc-js')
const { Settings } = require('./settings.js')
const { Session, MOST, WAIT_MS } = require('./session.js')
const { workBatch } = require('./batch.js')
const { clean, returned, thrown } = require('./outcome.js')
const { version } = require('./package.json')

const MAX_ERROR = 8 << 10 // bytes
const CONCURRENCY = 8
const PROGRESS_MS = 1000
const PROPERTIES = ['name', 'version', 'doc', 'config', 'payload', 'output', 'input', 'match', 'emits', 'previous', 'onLost', 'concurrency',
  'timeoutMs', 'maxFailures', 'examples', 'validate', 'open', 'check', 'close', 'work', 'batch']

const refusal = (message) => ({ code: grpc.status.FAILED_PRECONDITION, message })
const bytes = (value) => Buffer.from(JSON.stringify(value))

class Service {
  /** @param {import('./index.js').Plugin} plugin */
  constructor(plugin) {
    if (!/^[a-z0-9][a-z0-9-]{0,63}$/.test(plugin.name)) throw new Error(`the plugin's name ${plugin.name} is not [a-z0-9][a-z0-9-]{0,63}`)
    const needs = (what) => { throw new Error(`plugin ${plugin.name} needs ${what}`) }
    const odd = Object.keys(plugin).find((name) => !PROPERTIES.includes(name))
    if (odd) throw new Error(`plugin ${plugin.name}: there is no property ${odd}, but ${PROPERTIES.join(', ')}`)
    for (const name of ['match', 'emits', 'examples']) if (!Array.isArray(plugin[name] ?? [])) needs(`${name} as a list`)
    if (plugin.input && !['file', 'url', 'line'].includes(plugin.input.type)) needs(`an input.type of file, url or line, not ${plugin.input.type}`)
    if (Boolean(plugin.work) === Boolean(plugin.batch)) needs('one of work and batch')
    const { most = MOST, waitMs = WAIT_MS } = plugin.batch ?? {}
    if (!(Number.isInteger(most) && most > 0 && waitMs >= 0)) needs('a most of 1 or more, and a waitMs of 0 or more')
    const onLost = plugin.onLost ?? 'repeat'
    const concurrency = Math.floor(plugin.concurrency ?? CONCURRENCY)
    if (onLost !== 'repeat' && onLost !== 'doubt') needs('an onLost of repeat or doubt')
    if (!(Number.isInteger(concurrency) && concurrency > 0)) needs('a concurrency of 1 or more')
    this.plugin = plugin
    this.concurrency = concurrency // Configure may change it
    this.config = new Settings(plugin.config)
    if (this.config.marked() !== this.config.secrets().length) {
      needs('each secret (writeOnly) as a field of the config or of an object in it, ' +
        'and none within a list, a map or an alternative, or behind a $ref')
    }
    this.payload = new Settings(plugin.payload)
    this.opened = null // {config, state}, once it is configured
    this.session = null
  }

  /** The handlers, by the protocol's names. */
  handlers() {
    const answer = (method) => (call, reply) => {
      Promise.resolve(method.call(this, call.request)).then((response) => reply(null, response), (err) =>
        reply(err.code === grpc.status.FAILED_PRECONDITION ? err : { code: grpc.status.INTERNAL, message: String(err?.stack ?? err) }))
    }
    return {
      Describe: answer(this.describe),
      Configure: answer(this.configure),
      CheckHealth: answer(this.checkHealth),
      Drain: answer(this.drain),
      Process: (call) => this.process(call)
    }
  }

  describe() {
    const p = this.plugin
    return {
      name: p.name, version: p.version, doc: p.doc ?? '', sdk: 'node/' + version, features: p.previous ? ['previous'] : [], match: p.match ?? [], emits: p.emits ?? [],
      on_lost: p.onLost === 'doubt' ? 'ON_LOST_DOUBT' : 'ON_LOST_REPEAT', timeout_ms: p.timeoutMs ?? 0,
      max_failures: p.maxFailures ?? 0, concurrency: Math.floor(p.concurrency ?? CONCURRENCY),
      max_batch: p.batch ? p.batch.most ?? MOST : 0, max_wait_ms: p.batch ? p.batch.waitMs ?? WAIT_MS : 0,
      config_schema: bytes(this.config.schema), input_schema: bytes(this.payload.schema), output_schema: bytes(p.output ?? {}),
      input: p.input ?? null, secrets: this.config.secrets(),
      examples: (p.examples ?? []).map((e) => ({
        doc: e.doc ?? '', payload: bytes(e.payload), output: e.output === undefined ? Buffer.alloc(0) : bytes(e.output)
      }))
    }
  }

  async configure(request) {
    if (this.opened && !request.validate_only) throw refusal('configured already: another config takes another process')
    const { value: config, problems } = this.config.read(request.config, request.secrets)
    if (problems.length > 0) return { problems }
    try {
      await this.plugin.validate?.(config)
      if (request.validate_only) return { problems }
      this.opened = { config, state: await this.plugin.open?.(config) }
    } catch (err) {
      return { problems: [{ field: '', message: clean(err?.message ?? err, MAX_ERROR) }] }
    }
    if (request.concurrency > 0) this.concurrency = request.concurrency
    this.progressMs = Number(request.progress_ms ?? 0) || PROGRESS_MS
    return { problems }
  }

  process(call) {
    if (!this.opened || this.session || this.closed) return call.emit('error', refusal('Process is called once, after Configure'))
    this.session = new Session(this.plugin, (tasks, settle) => this.work(tasks, settle), this)
    this.session.serve(call)
  }

  /**
   * Works the tasks of one call: one, or those of a batch. It never throws.
   * @param settle gives a task its result: (task, result)
   */
  async work(tasks, settle) {
    const fitting = []
    for (const task of tasks) {
      const { value, problems } = this.payload.read(task.wire.payload)
      if (problems.length === 0) {
        fitting.push({ task, payload: value })
        continue
      }
      const error = 'payload: ' + problems.map((p) => (p.field ? `${p.field}: ` : '') + p.message).join('; ')
      settle(task, { outcome: 'OUTCOME_FAILED', final: true, code: 'payload', error: clean(error, MAX_ERROR) })
    }
    if (fitting.length === 0) return
    if (this.plugin.batch) return workBatch(this.plugin, fitting, this.opened, settle)
    const [{ task, payload }] = fitting
    settle(task, await this.workOne(task, payload))
  }

  async workOne(task, payload) {
    const { signal } = task.abort
    try {
      return returned(await this.plugin.work(task.item(payload), { ...this.opened, signal }))
    } catch (err) {
      return thrown(err, task, this.plugin.onLost === 'doubt')
    }
  }

  async checkHealth() {
    if (!this.opened || this.closed) throw refusal('CheckHealth is called after Configure and before Drain')
    try {
      await this.plugin.check?.(this.opened.config, this.opened.state)
      return { problem: '' }
    } catch (err) {
      return { problem: clean(err?.message ?? err, MAX_ERROR) }
    }
  }

  async drain(request) {
    const unfinished = await this.session?.drain(Number(request.grace_ms)) ?? []
    await this.close()
    return { unfinished }
  }

  /** Closes what open has opened, once. */
  async close() {
    const opened = this.opened
    if (!opened || this.closed) return
    this.closed = true
    try {
      await this.plugin.close?.(opened.config, opened.state)
    } catch (err) {
      console.error('close:', err)
    }
  }
}

module.exports = { Service }
