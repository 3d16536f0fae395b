/*
 * Every name of this SDK. C is the config, P the payload, O the output, S the value that open returns. All may be left
 * out: then they are any.
 */

type Awaitable<T> = T | PromiseLike<T>
type Name<T> = Extract<keyof T, string>

interface Keywords {
  type?: string | string[]
  description?: string
  default?: unknown
  enum?: readonly unknown[]
  additionalProperties?: boolean | Schema
  items?: boolean | Schema
  /** go-duration is text such as 30s or 7d; any other is a note for people. */
  format?: string
  /** Of a text of the config, in no list or map: a secret, which travels apart and is never described. */
  writeOnly?: boolean
  /** Of a field of the config: decides how the work goes and never what a result means. */
  'x-ledgerd-tune'?: boolean
  [keyword: string]: unknown
}

/** A JSON Schema (draft 2020-12). */
export interface Schema extends Keywords {
  properties?: { [name: string]: boolean | Schema }
  required?: readonly string[]
}

/** The schema of an object with the fields of T. Others are refused unless it has additionalProperties. */
export interface ObjectSchema<T> extends Keywords {
  properties?: { [K in Name<T>]?: boolean | Schema }
  required?: ReadonlyArray<Name<T>>
}

/** The field of the payload that the command line fills. */
export interface Input<P> {
  field: Name<P>
  type: 'file' | 'url' | 'line'
  /** Beside a file: the field for when it was last changed. */
  modified?: Name<P>
  /** Beside a file: the field for whose it is. */
  owner?: Name<P>
}

interface Common<C, P, S, O> {
  /** [a-z0-9][a-z0-9-]{0,63}; the program's file is ledgerd-plugin-NAME. */
  name: string
  /** A semantic version. */
  version: string
  /** Markdown; the first line is the summary. */
  doc?: string
  config?: ObjectSchema<C>
  payload?: ObjectSchema<P>
  output?: Schema
  input?: Input<P>
  /** Globs over base names, for folders of files. */
  match?: string[]
  /** Kinds that may be emitted. */
  emits?: string[]
  /** Whether items bring the output of their last completed round. */
  previous?: boolean
  /** What happens to an item whose attempt ended without a report; repeat if absent. */
  onLost?: 'repeat' | 'doubt'
  /** Calls of the function at a time, 1 or more; 8 if absent. */
  concurrency?: number
  /** For one attempt; none if absent. */
  timeoutMs?: number
  /** Failed attempts after which an item is dead; the ledger's number if absent. */
  maxFailures?: number
  /** Run by every conformance check. */
  examples?: Array<{ doc?: string, payload: Partial<P>, output?: O }>
  /** Throws if a config does not make sense. */
  validate?(config: C): unknown
  /** Called before the first item; what it returns is context.state. */
  open?(config: C): Awaitable<S>
  /** Throws if what the plugin depends on is not there. */
  check?(config: C, state: S): unknown
  /** Called after the last item. */
  close?(config: C, state: S): unknown
}

/** A function for one item. What it returns is the output; what it throws tells how the attempt ended. */
export interface Work<C, P, S, O> {
  work: (item: Item<P>, context: Context<C, S>) => Awaitable<O>
  batch?: undefined
}

/** A function for several items. */
export interface Batch<C, P, S, O> {
  work?: undefined
  batch: {
    /** Settles each item. Items that it has not settled share the error that it throws. */
    work: (items: Array<BatchItem<P, O>>, context: Context<C, S>) => unknown
    /** Items of a call; 100 if absent. */
    most?: number
    /** How long a call waits to be filled; 20 if absent. */
    waitMs?: number
  }
}

/** What a program offers: work or batch, and what ledgerd should know. */
export type Plugin<C = any, P = any, S = any, O = any> = Common<C, P, S, O> & (Work<C, P, S, O> | Batch<C, P, S, O>)

export interface Context<C = any, S = any> {
  config: C
  state: S
  /** Aborted when the attempt should end; of a batch: when all that is left of it should. */
  signal: AbortSignal
}

export interface Child {
  kind: string
  key: string
  /** The emitting item if absent. */
  scope?: string
  fingerprint?: string
  payload?: unknown
  due?: Date
  /** -2 to 2. */
  priority?: number
}

export interface Item<P = any> {
  /** A 64-bit number. */
  id: string
  kind: string
  scope: string
  key: string
  /** From 1; never used again for this item, so also its fencing number. */
  attempt: number
  /** The same for every attempt of one round. */
  idempotencyKey: string
  /** Checked, with its defaults. */
  payload: P
  /** The output of the last completed round, if asked for and there is one. */
  previous?: any
  /** The W3C trace context in which the item is worked, if it is traced. */
  traceparent?: string
  tracestate?: string
  /** Adds a line to the log of the attempt, whose last 16 KiB are kept. */
  log(message: unknown, fields?: Record<string, unknown>): void
  /** Reports how far the work is; passed on at most once a second. */
  progress(done: number, total?: number, unit?: string): void
  /** Adds an item if and only if this attempt ends as done or skipped. */
  emit(child: Child): void
}

export interface BatchItem<P = any, O = any> extends Item<P> {
  /** Aborted when this item should end. */
  signal: AbortSignal
  /** Ends the attempt, by its output or an error. Only the first call counts. */
  settle(result?: O | Error): void
}

/** The protocol's Result, with the output decoded, and the reports of progress. */
export interface Result<O = any> {
  outcome: 'OUTCOME_DONE' | 'OUTCOME_SKIPPED' | 'OUTCOME_FAILED' | 'OUTCOME_SNOOZED' | 'OUTCOME_UNKNOWN'
    | 'OUTCOME_RELEASED' | 'OUTCOME_CANCELLED'
  output?: O
  final?: boolean
  delay_ms?: number
  code?: string
  error?: string
  ending?: 'ENDING_PANICKED' | 'ENDING_TIMED_OUT'
  log: string
  emit: object[]
  progress: Array<{ done: number, total: number, unit: string }>
}

/** Serves a plugin; the program's last call. */
export function run<C = any, P = any, S = any, O = any>(plugin: Plugin<C, P, S, O>): void

/** Works one payload in this process, without ledgerd, for tests. A batch gets the one item. */
export function attempt<C = any, P = any, S = any, O = any>(
  plugin: Plugin<C, P, S, O>,
  payload: Partial<P>,
  /** With its secrets. */
  config?: Partial<C>,
  item?: { key?: string, attempt?: number, traceparent?: string, tracestate?: string, signal?: AbortSignal }
): Promise<Result<O>>

/** A failed attempt; the kind's policy decides whether and when it is tried again. */
export function failed(err: unknown): Error
/** Trying again cannot help. */
export function permanent(err: unknown): Error
/** Not to be tried again before ms milliseconds have passed. */
export function retryAfter(ms: number, err: unknown): Error
/** Asks for the item again after ms milliseconds, a second at least; it is no failure. With atMost (1 to 100), and an
 * error with a code, further attempts in a row are failures. */
export function snooze(ms: number, why: unknown, atMost?: number): Error
/** Completes the item: there was nothing to do. */
export function skip(why: unknown): Error
/** The effect may or may not have happened: a person decides. */
export function doubt(err: unknown): Error

/** A value of signal.reason: the item was cancelled. */
export const CANCELLED: Error
/** Another process may work on the item by now. */
export const LEASE_LOST: Error
/** The process ends. */
export const STOPPING: Error
/** The time for the attempt is over. */
export const TIMED_OUT: Error
