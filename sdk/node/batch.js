'use strict'
/*
 * One call of a function that works several items. Each item is settled by itself, and its result leaves at once; what
 * is left when the function ends shares the error that it threw.
 */
const { failed, returned, thrown, TIMED_OUT } = require('./outcome.js')

const LONGEST_TIMER = 2 ** 31 - 1 // ms; what is longer, Node would fire at once

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
  // The function may stop when all that is left of its items should end.
  const look = () => {
    const [first, ...others] = [...left].map((task) => task.abort.signal)
    if (first?.aborted && others.every((signal) => signal.aborted)) all.abort(first.reason)
  }
  const end = (task, result) => {
    if (!left.delete(task)) return
    settle(task, result)
    look()
  }
  const items = fitting.map(({ task, payload }) => {
    const { signal } = task.abort
    signal.addEventListener('abort', look)
    const ended = (value) => value instanceof Error ? thrown(value, signal, doubtful) : returned(value)
    return Object.assign(task.item(payload), { signal, settle: (value) => end(task, ended(value)) })
  })
  look() // of tests: a signal that is aborted already
  // It goes on when all is settled, so it has a limit of its own.
  const timeout = Math.min(Number(fitting[0].task.wire.timeout_ms), LONGEST_TIMER)
  const timer = timeout > 0 ? setTimeout(() => all.abort(TIMED_OUT), timeout) : undefined
  let why
  try {
    await plugin.batch.work(items, { ...opened, signal: all.signal })
    why = failed(Object.assign(new Error('the function returned without having settled the item'), { code: 'unsettled' }))
  } catch (err) {
    why = err
  }
  clearTimeout(timer)
  for (const task of left) end(task, thrown(why, task.abort.signal, doubtful))
}

module.exports = { workBatch }
