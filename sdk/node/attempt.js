'use strict'
/* Works one payload in this process, without ledgerd: for the tests of plugins. */
const { Service } = require('./service.js')
const { Task } = require('./task.js')

/** See index.d.ts. The function of a batch gets the one item. @type {typeof import('./index.js').attempt} */
async function attempt(plugin, payload, config = {}, { key = '1', attempt = 1, traceparent, tracestate, signal } = {}) {
  const service = new Service(plugin)
  const { problems } = await service.configure({ config: Buffer.from(JSON.stringify(config)), secrets: {} })
  if (problems.length > 0) throw new Error('config: ' + problems.map((p) => `${p.field}: ${p.message}`).join('; '))
  const progress = []
  const wire = {
    id: '1', attempt: String(attempt), kind: plugin.name, scope: '', key, idempotency_key: key,
    payload: Buffer.from(JSON.stringify(payload)), lock_id: Buffer.alloc(0), timeout_ms: plugin.timeoutMs ?? 0,
    traceparent, tracestate
  }
  const task = new Task(wire, plugin.emits ?? [], -1, ({ done, total, unit }) => progress.push({ done, total, unit }))
  signal?.addEventListener('abort', () => task.stop(signal.reason))
  if (signal?.aborted) task.stop(signal.reason)
  let result
  await service.work([task], (_, ended) => { result = task.settle(ended) })
  await service.close()
  return { ...result, output: result.output?.length ? JSON.parse(result.output) : undefined, progress }
}

module.exports = { attempt }
