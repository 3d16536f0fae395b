'use strict'
/*
 * The outcome of an attempt: a returned value is its output, and a thrown error tells how it ended. Limits are those of
 * the protocol. Longer texts are cut here, because ledgerd would end the stream.
 */

const MAX_OUTPUT = 1 << 20 // bytes
const MAX_ERROR = 8 << 10 // bytes
const MAX_CODE = 64

/** Whether an error has a code for the result. The code of an AbortError means only that there was an abort. */
const hasCode = (err) => typeof err?.code === 'string' && err.name !== 'AbortError'

/** An error that decides the outcome; result has fields of the protocol's Result. */
class Outcome extends Error {
  constructor(cause, result) {
    super(cause instanceof Error ? cause.message : textOf(cause), { cause })
    this.result = result
    if (hasCode(cause)) this.code = cause.code
    if (cause?.output !== undefined) this.output = cause.output
  }
}

/** A delay in milliseconds. A value that is not a number would mean no delay, so it is an error here. */
function delay(ms) {
  const whole = Math.max(0, Math.ceil(ms))
  if (ms === null || Number.isNaN(whole)) throw new TypeError(`a delay is a number of milliseconds, not ${textOf(ms)}`)
  return Math.min(whole, Number.MAX_SAFE_INTEGER)
}

/** A failed attempt; the kind's policy decides whether and when it is tried again. */
const failed = (err) => new Outcome(err, { outcome: 'OUTCOME_FAILED' })
/** Trying again cannot help. */
const permanent = (err) => new Outcome(err, { outcome: 'OUTCOME_FAILED', final: true })
/** Not to be tried again before ms milliseconds have passed. */
const retryAfter = (ms, err) => new Outcome(err, { outcome: 'OUTCOME_FAILED', delay_ms: delay(ms) })
/**
 * Asks for the item again after ms milliseconds, a second at least; it is no failure. With atMost (1 to 100), and an
 * error with a code, further attempts in a row are failures.
 */
function snooze(ms, why, atMost = 0) {
  if (atMost && !(Number.isInteger(atMost) && atMost > 0 && atMost <= 100 && hasCode(why))) {
    throw new TypeError(`atMost is 1 to 100, with an error that has a code, not ${textOf(atMost)}`)
  }
  return new Outcome(why, { outcome: 'OUTCOME_SNOOZED', delay_ms: Math.max(1000, delay(ms)), at_most: atMost })
}
/** Completes the item: there was nothing to do. */
const skip = (why) => new Outcome(why, { outcome: 'OUTCOME_SKIPPED' })
/** The effect may or may not have happened: a person decides. */
const doubt = (err) => new Outcome(err, { outcome: 'OUTCOME_UNKNOWN' })

/** Reasons with which an item's signal is aborted (signal.reason). */
const CANCELLED = new Error('item was cancelled')
const LEASE_LOST = new Error('lease lost: another process may work on the item by now')
const STOPPING = new Error('ledgerd is stopping')
const TIMED_OUT = new Error('the time for the attempt is over')

const reasons = { REASON_LEASE_LOST: LEASE_LOST, REASON_STOPPING: STOPPING, REASON_TIMEOUT: TIMED_OUT }

/** The reason of a signal, by the reason of the host's Cancel. */
const reasonOf = (name) => reasons[name] ?? CANCELLED

/** Any value as text; its type if it has no text. */
function textOf(value) {
  try {
    return String(value)
  } catch {
    return typeof value
  }
}

/** Text that ledgers keep: valid Unicode, without NUL, cut to n bytes but not within a letter. */
function clean(text, n) {
  const bytes = Buffer.from(textOf(text).replaceAll('\0', '\uFFFD'))
  if (bytes.length <= n) return bytes.toString()
  let end = n
  while ((bytes[end] & 0xc0) === 0x80) end--
  return bytes.subarray(0, end).toString()
}

/** The class of an error: small letters, digits and _. */
const cleanCode = (code) => clean(code, MAX_CODE).toLowerCase().replace(/[^a-z0-9_]/g, '_') || '_'

/** The result of an attempt that was told to end, by the reason of its signal. */
function stopped(reason) {
  switch (reason) {
    case CANCELLED: return { outcome: 'OUTCOME_CANCELLED' }
    case LEASE_LOST:
    case STOPPING: return { outcome: 'OUTCOME_RELEASED' }
    default: return { outcome: 'OUTCOME_FAILED', ending: 'ENDING_TIMED_OUT', code: 'timeout' }
  }
}

/** The result of a function that returned. */
function returned(value) {
  try {
    return { outcome: 'OUTCOME_DONE', output: outputOf(value) }
  } catch (err) {
    return { outcome: 'OUTCOME_FAILED', final: true, code: 'output', error: clean(err?.message ?? err, MAX_ERROR) }
  }
}

/** Throws if a value has a part that JSON.stringify writes as null or {} without an error. */
function refuseLoss(value) {
  const paths = new Map() // by object
  JSON.stringify(value, function (key, part) {
    const path = paths.has(this) ? `${paths.get(this)}.${key}` : 'output'
    if (typeof part === 'number' && !Number.isFinite(part)) throw new TypeError(`${path}: ${part} is no JSON`)
    if (part instanceof Map || part instanceof Set) throw new TypeError(`${path}: a ${part.constructor.name} is no JSON; use an object or a list`)
    if (part !== null && typeof part === 'object') paths.set(part, path)
    return part
  })
}

function outputOf(value) {
  const text = JSON.stringify(value ?? undefined) ?? ''
  if (/null|\{\}/.test(text)) refuseLoss(value)
  const output = Buffer.from(text)
  if (output.length > MAX_OUTPUT) {
    throw new Error(`result too large: output has ${output.length} bytes, at most ${MAX_OUTPUT}; write it to a file and return its path`)
  }
  return output
}

/**
 * The result of a function that threw. If effects must not be repeated (doubtful), an error of unknown origin tells
 * nothing about the effect: it ends the attempt without a report. The stack of an error of unknown origin is logged.
 */
function thrown(err, task, doubtful) {
  try {
    return judged(err, task, doubtful)
  } catch { // its properties throw, too
    return judged(new Error('an error that cannot be read was thrown'), task, doubtful)
  }
}

function judged(err, task, doubtful) {
  const { signal } = task.abort
  const result = { error: clean(err?.message ?? err, MAX_ERROR) }
  if (hasCode(err)) result.code = cleanCode(err.code)
  try {
    result.output = outputOf(err?.output)
  } catch {
    // The error matters more than its output.
  }
  if (err instanceof Outcome) return { ...result, ...err.result }
  if (signal.reason === TIMED_OUT && err?.name === 'AbortError') result.error = TIMED_OUT.message // not "The operation was aborted"
  if (signal.aborted) return { ...stopped(signal.reason), ...result }
  if (err?.stack) task.log(err.stack)
  if (doubtful) return { ...result, outcome: 'OUTCOME_FAILED', ending: 'ENDING_PANICKED', code: 'panic' }
  return { ...result, outcome: 'OUTCOME_FAILED' }
}

module.exports = {
  failed, permanent, retryAfter, snooze, skip, doubt, clean, textOf,
  reasonOf, stopped, returned, thrown, CANCELLED, LEASE_LOST, STOPPING, TIMED_OUT
}
