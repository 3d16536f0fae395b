'use strict'
/*
 * Turns a JavaScript function into a plugin of ledgerd: a program that ledgerd starts, feeds with items
 * and watches. index.d.ts describes each name; the protocol is in docs/plugins/any-language.md.
 */
const path = require('node:path')
const { Service } = require('./service.js')
const { serve } = require('./process.js')
const { attempt } = require('./attempt.js')
const outcome = require('./outcome.js')

/** Serves a plugin; the program's last call. @param {import("./index.js").Plugin} plugin */
function run(plugin) {
  let service
  try {
    service = new Service(plugin)
  } catch (err) { // the first frame of the author's, without the stack of the SDK
    const frames = String(err.stack).split('\n').filter((line) => line.startsWith('    at '))
    const ours = path.join(__dirname, path.sep)
    process.stderr.write(`Error: ${err.message}\n${frames.find((line) => !line.includes(ours)) ?? frames[0]}\n`)
    process.exit(1)
  }
  serve(service)
}

const { failed, permanent, retryAfter, snooze, skip, doubt, CANCELLED, LEASE_LOST, STOPPING, TIMED_OUT } = outcome
module.exports = {
  run, attempt, failed, permanent, retryAfter, snooze, skip, doubt, CANCELLED, LEASE_LOST, STOPPING, TIMED_OUT
}
