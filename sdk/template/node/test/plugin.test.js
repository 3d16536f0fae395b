'use strict'
const assert = require('node:assert')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const test = require('node:test')
const { attempt } = require('../ledgerd')
const plugin = require('../plugin.js')

test('counts lines and words', async () => {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'sample-')), 'a.txt')
  fs.writeFileSync(file, 'one\ntwo three\n')
  const result = await attempt(plugin, { path: file })
  assert.deepStrictEqual(result.output, { lines: 2, words: 3 })
})

test('refuses what is too large', async () => {
  const result = await attempt(plugin, { path: __filename }, { max_bytes: 1 })
  assert.strictEqual(result.code, 'too_large')
  assert.ok(result.final)
})
