'use strict'
/*
 * One call of a function that works several items. Each item is settled by itself, and its result is sent at once.
 * Items that are not settled when the function ends share the error that it threw.
 */
const { failed, returned, thrown, TIMED_OUT } = require('./outcome.js')
const { LONGEST_TIMER } = require('./task.js')

/**
 * Works the tasks of a call and settles each. It never throws.
 * @param {import('./index.js').Plugin} plugin
 * @param {{task: import('./task.js').Task, payload: object}[]} fitting at least one
 * @param {{config: object, state: any}} opened
 * @param settle ends a task: (task, result)
 */
async function workBatch(plugin, fitting, opened, settle) {
  const all = new AbortController()
  const left = new Set(fitting.map(({ task }) => task))
  const doubtful = plugin.onLost === 'doubt'
  // The signal of the call is aborted when all items that are not settled should end.
  const abortAll = () => {
    const [first, ...others] = [...left].map((task) => task.abort.signal)
    if (first?.aborted && others.every((signal) => signal.aborted)) all.abort(first.reason)
  }
  const end = (task, result) => {
    if (!left.delete(task)) return
    settle(task, result)
    abortAll()
  }
  const items = fitting.map(({ task, payload }) => {
    const { signal } = task.abort
    signal.addEventListener('abort', abortAll)
    const item = task.item(payload)
    const add = item.emit
    return Object.assign(item, {
      signal,
      // If an item to add is refused, this attempt ends for good. The function gets an error that is not about the
      // other items, so they end by it as by any other error.
      emit: (child) => {
        try {
          add(child)
        } catch (err) {
          end(task, thrown(err, task, doubtful))
          throw Object.assign(new Error(err.message), { code: err.code })
        }
      },
      settle: (value) => {
        if (typeof value?.then === 'function') throw new TypeError('settle takes a value: await the promise before')
        end(task, value instanceof Error ? thrown(value, task, doubtful) : returned(value))
      }
    })
  })
  abortAll() // a test may pass a signal that is aborted already
  // The function may go on after all items are settled, so the call has a timeout of its own.
  const timeout = Math.min(Number(fitting[0].task.wire.timeout_ms), LONGEST_TIMER)
  const timer = timeout > 0 ? setTimeout(() => all.abort(TIMED_OUT), timeout) : undefined
  const unsettled = Object.assign(new Error('the function returned without having settled the item'), { code: 'unsettled' })
  let why = unsettled
  try {
    await plugin.batch.work(items, { ...opened, signal: all.signal })
  } catch (err) {
    why = err
  }
  clearTimeout(timer)
  for (const task of left) { // the function may have returned because its items were told to end
    const { signal } = task.abort
    end(task, thrown(why === unsettled && !signal.aborted ? failed(why) : why, task, doubtful))
  }
}

module.exports = { workBatch }
