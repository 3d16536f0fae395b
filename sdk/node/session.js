'use strict'
/*
 * The one stream of a process: a queue of items, as many calls of the function as the concurrency, and
 * messages to the host with the results and reports that have gathered since the last message. Credits are how many
 * items the host may send beyond those that are here.
 */
const { Task, LONGEST_TIMER } = require('./task.js')
const { reasonOf, stopped, STOPPING } = require('./outcome.js')

const MOST = 100 // items of a batch
const WAIT_MS = 20 // for a batch to fill
const STOP_TIME = 1000 // ms, for functions that were told to stop
const MESSAGE_MAX = 1 << 20 // bytes of results after which a message ends

const nameOf = ({ id, attempt }) => `${id}/${attempt}`

class Session {
  /**
   * @param plugin see Plugin in index.d.ts
   * @param run works the tasks of one call and gives each its result: async (tasks, settle), settle(task, result)
   * @param {{concurrency: number, progressMs: number}} limits progressMs: least time between two reports; -1: each
   */
  constructor(plugin, run, { concurrency, progressMs }) {
    this.plugin = plugin
    this.run = run
    this.concurrency = concurrency
    this.progressMs = progressMs
    const { most = MOST, waitMs = WAIT_MS } = plugin.batch ?? { most: 1, waitMs: 0 }
    this.most = most // items of a call
    this.waitMs = waitMs // for a call to fill
    // If effects must not be repeated, no item waits in the queue: the process may die.
    this.window = concurrency * most * (plugin.onLost === 'doubt' ? 1 : 2)
    this.queue = []
    this.calls = 0 // that are running; a call may go on after its last item was settled
    this.filling = undefined // the timer of the call that waits for more items
    this.running = new Map()
    this.results = []
    this.reports = []
    this.granted = 0 // credits of the host, and items without a result
    this.draining = false
    this.ended = false
    this.sending = false
    this.woken = false
    this.idle = [] // the callbacks of whenIdle
  }

  /** Works the stream until the host ends it. */
  serve(call) {
    this.call = call
    call.on('data', (message) => {
      this.take(message.items)
      for (const c of message.cancels) this.cancel(c)
    })
    call.on('end', () => this.whenIdle().then(() => { this.end(); call.end() }))
    call.on('cancelled', () => { this.end(); this.stopRunning(STOPPING) })
    call.on('error', () => {}) // if the connection breaks, 'cancelled' comes, too
    this.wake() // the first credits
  }

  end() {
    this.ended = true
    this.stopFilling()
    this.tellIdle()
  }

  take(items) {
    if (this.draining) return items.forEach((it) => this.handBack(it))
    this.queue.push(...items)
    this.next()
  }

  handBack(it, result = { outcome: 'OUTCOME_RELEASED' }) {
    this.add({ ...result, id: it.id, attempt: it.attempt, lock_id: it.lock_id })
  }

  /** Starts as many calls as may run, none after the end. A call that is not full waits for more items, from when it could begin. */
  next() {
    while (!this.ended && this.queue.length > 0 && this.calls < this.concurrency) {
      if (this.queue.length < this.most && this.waitMs > 0) {
        this.filling ??= setTimeout(() => {
          this.start()
          this.next()
        }, this.waitMs)
        return
      }
      this.start()
    }
  }

  /** Starts one call with the items that are here. */
  start() {
    this.stopFilling()
    const report = (progress) => {
      this.reports.push(progress)
      this.wake()
    }
    const tasks = this.queue.splice(0, this.most).map((wire) =>
      new Task(wire, this.plugin.emits ?? [], this.progressMs, report))
    if (tasks.length === 0) return // they were cancelled
    for (const task of tasks) this.running.set(nameOf(task.wire), task)
    this.calls++
    this.run(tasks, (task, result) => {
      this.running.delete(nameOf(task.wire))
      this.add(task.settle(result))
    }).then(() => {
      this.calls--
      this.next()
      this.tellIdle()
    })
  }

  stopFilling() {
    clearTimeout(this.filling)
    this.filling = undefined
  }

  /** Ends an item, begun or not. If the item is not here, its result has been sent or will be. */
  cancel(c) {
    const reason = reasonOf(c.reason)
    const task = this.running.get(nameOf(c))
    if (task) return task.stop(reason)
    const at = this.queue.findIndex((it) => nameOf(it) === nameOf(c))
    if (at >= 0) this.handBack(this.queue.splice(at, 1)[0], stopped(reason))
  }

  stopRunning(reason) {
    for (const task of this.running.values()) task.stop(reason)
  }

  add(result) {
    this.results.push(result)
    this.granted--
    this.wake()
  }

  /** Sends a message after the current callbacks. */
  wake() {
    if (this.woken || this.sending) return
    this.woken = true
    setImmediate(() => this.send())
  }

  send() {
    this.woken = false
    if (this.ended) return
    const message = { credits: 0, results: [], progress: this.reports.splice(0) }
    for (let size = 0; this.results.length > 0 && size < MESSAGE_MAX;) {
      const result = this.results.shift()
      size += sizeOf(result)
      message.results.push(result)
    }
    if (!this.draining) {
      message.credits = Math.max(0, this.window - this.granted)
      this.granted += message.credits
    }
    if (message.credits + message.results.length + message.progress.length === 0) return this.tellIdle()
    this.sending = true
    this.call.write(message, () => { // it has left, or the stream has ended
      this.sending = false
      this.send()
    })
  }

  isIdle() {
    return this.ended || (this.calls === 0 && this.queue.length === 0 && this.results.length === 0 && !this.sending)
  }

  tellIdle() {
    if (this.isIdle()) this.idle.splice(0).forEach((tell) => tell())
  }

  /** Waits until no item is here and all results are sent, at most ms milliseconds. */
  whenIdle(ms) {
    if (this.isIdle()) return Promise.resolve()
    return new Promise((resolve) => {
      this.idle.push(resolve)
      if (ms !== undefined) setTimeout(resolve, Math.min(ms, LONGEST_TIMER)).unref()
    })
  }

  /**
   * Hands back the items that were not begun. The others get the grace to end and are then stopped. After its return
   * all results have been sent, except those of the items whose ids it returns.
   */
  async drain(graceMs) {
    this.draining = true
    this.queue.splice(0).forEach((it) => this.handBack(it))
    await this.whenIdle(graceMs)
    this.stopRunning(STOPPING)
    await this.whenIdle(STOP_TIME)
    return [...this.running.values()].map((task) => task.wire.id)
  }
}

/** About how many bytes a result takes. */
function sizeOf(r) {
  const emitted = (r.emit ?? []).reduce((sum, c) => sum + c.payload.length + c.key.length + 64, 0)
  return (r.output?.length ?? 0) + (r.log?.length ?? 0) + (r.error?.length ?? 0) + emitted
}

module.exports = { Session, MOST, WAIT_MS }
