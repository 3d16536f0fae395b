'use strict'
/* One attempt in work, and its item for the author's function. */
const { clean, permanent, textOf, TIMED_OUT } = require('./outcome.js')

const MAX_PAYLOAD = 1 << 20 // bytes, of an emitted item
const MAX_LOG = 16 << 10 // bytes
const MAX_KEY = 2048 // bytes
const MAX_SCOPE = 256 // bytes
const MAX_EMIT = 10_000 // items
const MAX_EMIT_BYTES = 8 << 20
const MAX_UNIT = 64 // bytes
const LONGEST_TIMER = 2 ** 31 - 1 // ms; Node fires a longer timer at once

/** The text of a field of the log. It never throws: no value of a log may end the attempt. */
function shown(value) {
  try {
    return typeof value === 'string' ? value : JSON.stringify(value)
  } catch { // a circle, a BigInt
    return clean(value, MAX_LOG)
  }
}

/** The last n bytes of a text, but not half a letter. */
function tail(text, n) {
  const bytes = Buffer.from(text)
  let from = Math.max(0, bytes.length - n)
  while ((bytes[from] & 0xc0) === 0x80) from++
  return bytes.subarray(from).toString()
}

class Task {
  /**
   * @param wire the protocol's Item
   * @param {string[]} emits kinds that may be emitted
   * @param {number} progressMs least time between two reports; -1: each is passed on
   * @param {function} report passes a report on
   */
  constructor(wire, emits, progressMs, report) {
    this.wire = wire
    this.emits = emits
    this.progressMs = progressMs
    this.report = report
    this.abort = new AbortController()
    this.lines = [] // the last lines of the log
    this.logged = 0 // bytes of lines
    this.children = []
    this.emitted = 0 // bytes of children
    this.reported = -Infinity // when a report was passed on last
    this.held = null // a report that came less than progressMs after the last one
    const timeout = Number(wire.timeout_ms)
    if (timeout > 0) this.timeout = setTimeout(() => this.stop(TIMED_OUT), Math.min(timeout, LONGEST_TIMER))
  }

  /** Aborts the function's signal; only the first reason counts. */
  stop(reason) { this.abort.abort(reason) }

  /** Makes the protocol's Result of the fields that run gave. */
  settle(result) {
    clearTimeout(this.timeout)
    clearTimeout(this.tick)
    this.settled = true
    const completed = result.outcome === 'OUTCOME_DONE' || result.outcome === 'OUTCOME_SKIPPED'
    const { id, attempt, lock_id } = this.wire
    return { ...result, id, attempt, lock_id, log: this.lines.join(''), emit: completed ? this.children : [] }
  }

  /** The item as the function gets it. @param payload decoded and checked */
  item(payload) {
    const w = this.wire
    const previous = w.previous?.length > 0 ? JSON.parse(w.previous) : undefined
    return {
      id: w.id, kind: w.kind, scope: w.scope, key: w.key, attempt: Number(w.attempt),
      idempotencyKey: w.idempotency_key, payload, previous,
      traceparent: w.traceparent || undefined, tracestate: w.tracestate || undefined,
      log: (message, fields) => this.log(message, fields),
      progress: (done, total, unit) => this.progress(done, total, unit),
      emit: (child) => this.emit(child)
    }
  }

  log(message, fields = {}) {
    const extra = Object.entries(fields ?? {}).map(([k, v]) => ` ${k}=${shown(v)}`)
    const line = tail(clean(`${new Date().toISOString()} ${textOf(message)}${extra.join('')}`, Infinity), MAX_LOG - 1) + '\n'
    this.lines.push(line)
    this.logged += Buffer.byteLength(line)
    while (this.logged > MAX_LOG) this.logged -= Buffer.byteLength(this.lines.shift())
  }

  /** Reports how far the work is. The first report is passed on at once, then the newest one every progressMs. */
  progress(done, total = 0, unit = '') {
    if (this.settled) return
    const { id, attempt } = this.wire
    const report = { id, attempt, done: Math.trunc(done), total: Math.trunc(total), unit: clean(unit, MAX_UNIT) }
    const wait = this.reported + this.progressMs - Date.now()
    if (wait <= 0) {
      this.reported = Date.now()
      this.report(report)
      return
    }
    if (!this.held) {
      this.tick = setTimeout(() => {
        this.reported = Date.now()
        this.report(this.held)
        this.held = null
      }, Math.min(wait, LONGEST_TIMER))
    }
    this.held = report
  }

  /** Adds an item when and only when this attempt ends as done or skipped. */
  emit({ kind, key, scope, fingerprint = '', payload, due, priority = 0 }) {
    const child = {
      kind, key: String(key ?? ''), scope: scope ?? `${this.wire.kind}/${this.wire.id}`, fingerprint, priority,
      payload: payload === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(payload)),
      due_us: due === undefined ? 0 : due.getTime() * 1000
    }
    const names = child.key + child.scope + child.fingerprint
    const size = child.payload.length + Buffer.byteLength(names) + 64
    const problem = this.settled ? 'the attempt has ended'
      : !this.emits.includes(kind) ? 'the plugin does not declare this kind; add it to emits'
      : child.key === '' ? 'key is empty'
      : Buffer.byteLength(child.key) > MAX_KEY ? `key has more than ${MAX_KEY} bytes`
      : Buffer.byteLength(child.scope) > MAX_SCOPE ? `scope has more than ${MAX_SCOPE} bytes`
      : /\0/.test(names) ? 'key, scope and fingerprint must not hold NUL'
      : /\p{Surrogate}/u.test(names) ? 'key, scope and fingerprint must not hold half a letter'
      : Number.isNaN(child.due_us) ? 'due is not a time'
      : child.payload.length > MAX_PAYLOAD ? `payload has more than ${MAX_PAYLOAD} bytes`
      : !(Number.isInteger(priority) && Math.abs(priority) <= 2) ? `priority ${priority} is not between -2 and 2`
      : this.children.length === MAX_EMIT ? `an attempt may emit ${MAX_EMIT} items`
      : this.emitted + size > MAX_EMIT_BYTES ? `an attempt may emit ${MAX_EMIT_BYTES} bytes` : ''
    if (problem) { // it would be the same at the next attempt
      throw permanent(Object.assign(new Error(`emit ${kind} ${JSON.stringify(clean(child.key, 80))}: ${problem}`), { code: 'emit_refused' }))
    }
    this.children.push(child)
    this.emitted += size
  }
}

module.exports = { Task, LONGEST_TIMER }
