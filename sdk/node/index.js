'use strict'
/*
 * Turns a JavaScript function into a plugin of ledgerd: a program that ledgerd starts, feeds with items
 * and watches. See README.md; the protocol is in docs/plugins/any-language.md.
 */
const { Service } = require('./service.js')
const { serve } = require('./process.js')
const { attempt } = require('./attempt.js')
const outcome = require('./outcome.js')

/**
 * @typedef {object} Plugin
 * @property {string} name [a-z0-9][a-z0-9-]{0,63}; the program file is ledgerd-plugin-NAME
 * @property {string} version semantic version
 * @property {string} [doc] Markdown; the first line is the summary
 * @property {(item: Item, context: Context) => any} work works one item; what it returns is the output
 * @property {object} [config] JSON Schema of the config, an object; writeOnly marks a secret, x-ledgerd-tune
 *   what decides how the work goes and never what a result means
 * @property {object} [payload] JSON Schema of the payload, an object
 * @property {object} [output] JSON Schema of the output
 * @property {{field: string, type: 'file'|'url'|'line', modified?: string, owner?: string}} [input] the field of the
 *   payload that the command line fills; of a file also those for when it was last changed and whose it is
 * @property {string[]} [match] globs over base names, for folders of files
 * @property {string[]} [emits] kinds that may be emitted
 * @property {boolean} [previous] whether items bring the output of their last completed round
 * @property {'repeat'|'doubt'} [onLost] what happens to an item whose attempt ended without a report
 * @property {number} [concurrency] calls of work at a time; 8 if absent
 * @property {number} [timeoutMs] for one attempt; none if absent
 * @property {number} [maxFailures] after which an item is dead; the ledger's if absent
 * @property {{doc?: string, payload: object, output?: any}[]} [examples] run by every conformance check
 * @property {(config: object) => any} [validate] throws if a config does not make sense
 * @property {(config: object) => any} [open] before the first item; what it returns is context.state
 * @property {(config: object, state: any) => any} [check] throws if what the plugin depends on is not there
 * @property {(config: object, state: any) => any} [close] after the last item
 */
/**
 * @typedef {object} Item
 * @property {string} id a 64-bit number
 * @property {string} kind
 * @property {string} scope
 * @property {string} key
 * @property {number} attempt from 1; never used again for this item, so also its fencing number
 * @property {string} idempotencyKey the same for every attempt of one round
 * @property {*} previous output of the last completed round, if asked for and there is one
 * @property {string} [traceparent] of the W3C trace context in which the item is worked, if it is traced
 * @property {string} [tracestate] of the same
 * @property {any} payload checked, with its defaults
 * @property {(message: string, fields?: object) => void} log kept with the attempt, the last 16 KiB
 * @property {(done: number, total?: number, unit?: string) => void} progress passed on at most once a second
 * @property {(child: {kind: string, key: string, scope?: string, fingerprint?: string, payload?: any, due?: Date,
 *   priority?: number}) => void} emit adds an item if and only if this attempt ends as done or skipped
 */
/** @typedef {{config: any, state: any, signal: AbortSignal}} Context signal: aborted when the attempt should end */

/** Serves a plugin; the program's last call. @param {Plugin} plugin */
function run(plugin) { serve(new Service(plugin)) }

const { failed, permanent, retryAfter, snooze, skip, doubt, CANCELLED, LEASE_LOST, STOPPING, TIMED_OUT } = outcome
module.exports = {
  run, attempt, failed, permanent, retryAfter, snooze, skip, doubt, CANCELLED, LEASE_LOST, STOPPING, TIMED_OUT
}
