'use strict'
const fs = require('node:fs')
const readline = require('node:readline')
const { permanent } = require('./ledgerd')

/** Works one item: what it returns is the output, what it throws says how the attempt ended. */
async function work(item, { config, signal }) {
  const { size } = await fs.promises.stat(item.payload.path) // a plain error: tried again later
  if (size > config.max_bytes) {
    throw permanent(Object.assign(new Error(`it has ${size} bytes, at most ${config.max_bytes}`), { code: 'too_large' }))
  }
  const stream = fs.createReadStream(item.payload.path, { signal }) // cancelled, out of time, or ledgerd stops
  let lines = 0
  let words = 0
  for await (const line of readline.createInterface({ input: stream, crlfDelay: Infinity })) {
    lines++
    words += line.split(/\s+/).filter(Boolean).length
    item.progress(stream.bytesRead, size, 'bytes')
  }
  return { lines, words }
}

module.exports = {
  name: 'sample',
  version: '0.1.0',
  doc: 'Counts the lines and words of text files.',
  work,
  match: ['*.txt', '*.md'],
  input: { field: 'path', type: 'file' }, // the command line fills it
  payload: { // what is to be done (--set)
    properties: { path: { type: 'string', minLength: 1, description: 'the text file' } },
    required: ['path']
  },
  config: { // what a machine allows and has (--with)
    properties: { max_bytes: { type: 'integer', minimum: 1, default: 100_000_000, description: 'size of the largest file that is taken' } }
  },
  output: { type: 'object', properties: { lines: { type: 'integer' }, words: { type: 'integer' } } }
}
