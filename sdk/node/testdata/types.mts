// Compiled by a test: what is right passes, and each line below an @ts-expect-error must not.
import { attempt, doubt, permanent, run, CANCELLED, type Plugin } from 'ledgerd-plugin'

interface Config { prefix: string, max: number }
interface Payload { name: string, path?: string }
interface State { opened: Date }

const one: Plugin<Config, Payload, State, string> = {
  name: 'greet',
  version: '1.0.0',
  config: { properties: { prefix: { type: 'string', default: 'hello' }, max: { type: 'integer', 'x-ledgerd-tune': true } } },
  payload: { properties: { name: { type: 'string', minLength: 1 } }, required: ['name'], additionalProperties: true },
  input: { field: 'path', type: 'file' },
  examples: [{ payload: { name: 'Ada' }, output: 'hello Ada' }],
  open: async ({ prefix }) => ({ opened: new Date(prefix) }),
  close: (_, state) => state.opened.getTime(),
  async work (item, { config, state, signal }) {
    signal.throwIfAborted()
    if (signal.reason === CANCELLED) throw permanent(new Error('cancelled'))
    item.emit({ kind: 'next', key: item.payload.name, due: state.opened })
    item.log('at work', { max: config.max.toFixed() })
    return `${config.prefix} ${item.payload.name.toUpperCase()}`
  }
}
const many: Plugin<Config, Payload, undefined, { letters: number }> = {
  name: 'lengths',
  version: '1.0.0',
  batch: {
    most: 50,
    waitMs: 10,
    work (items, { config }) {
      for (const item of items) {
        if (item.signal.aborted) item.settle(doubt(item.signal.reason))
        else item.settle({ letters: item.payload.name.length + config.max })
        // @ts-expect-error: an output of another type
        item.settle('long')
      }
    }
  }
}
run(one)
run(many)
run({
  name: 'plain',
  version: '1.0.0',
  config: { properties: { by: { type: 'number' } } },
  work: (item, { config }) => item.payload.n * config.by
})
const result = await attempt(one, { name: 'Ada' }, { prefix: 'hi' }, { signal: AbortSignal.abort(CANCELLED) })
const output: string | undefined = result.output
void output

const base = { name: 'wrong', version: '1.0.0' }
// @ts-expect-error: neither work nor batch
run({ ...base })
// @ts-expect-error: both
run({ ...base, work: () => 1, batch: { work: () => {} } })
// @ts-expect-error: no version
run({ name: 'wrong', work: () => 1 })
// @ts-expect-error: an output of another type
run<Config, Payload, State, string>({ ...base, work: () => 1 })
// @ts-expect-error: no such field in the payload
run<Config, Payload>({ ...base, work: (item) => item.payload.nane })
// @ts-expect-error: no such field in the config
run<Config, Payload>({ ...base, work: (_, { config }) => config.perfix })
// @ts-expect-error: no such field in the schema
run<Config, Payload>({ ...base, config: { properties: { perfix: { type: 'string' } } }, work: () => 1 })
// @ts-expect-error: a required field that there is not
run<Config, Payload>({ ...base, payload: { required: ['nane'] }, work: () => 1 })
// @ts-expect-error: the command line fills a field that there is not
run<Config, Payload>({ ...base, input: { field: 'nane', type: 'line' }, work: () => 1 })
// @ts-expect-error: there is no such policy
run({ ...base, onLost: 'retry', work: () => 1 })
// @ts-expect-error: an item of work is not settled
run({ ...base, work: (item) => item.settle(1) })
// @ts-expect-error: a payload of another type
void attempt(one, { name: 1 })
