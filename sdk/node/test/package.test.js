'use strict'
/* What is in this folder, as a package. */
const assert = require('node:assert')
const { execFileSync, spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const test = require('node:test')
const sdk = require('..')

const here = path.dirname(__dirname)
const read = (name) => fs.readFileSync(path.join(here, name), 'utf8')

test('copies are those of make generate', () => {
  assert.strictEqual(require('../proto.js').trim(), read('../wire/plugin.proto').trim())
  assert.strictEqual(read('LICENSE'), read('../../LICENSE'))
})

test('packages are pinned, wherever they come from', () => {
  // Addresses differ between machines. The .npmrc that is here leaves them out.
  assert.ok(!read('package-lock.json').includes('"resolved"'))
  for (const version of Object.values(require('../package.json').dependencies)) assert.match(version, /^\d+\.\d+\.\d+$/)
})

test('the package for npm has what belongs in it', () => {
  const list = execFileSync('npm', ['pack', '--dry-run', '--json', '--offline'], { cwd: here, encoding: 'utf8' })
  const modules = fs.readdirSync(here).filter((name) => name.endsWith('.js'))
  assert.deepStrictEqual(JSON.parse(list)[0].files.map((f) => f.path).sort(),
    ['LICENSE', 'README.md', 'index.d.ts', 'package.json', ...modules].sort())
})

test('what is exported has a type', () => {
  const declared = read('index.d.ts').matchAll(/^export (?:function|const) (\w+)/gm)
  assert.deepStrictEqual(Object.keys(sdk).sort(), [...declared].map(([, name]) => name).sort())
})

test('types take a plugin in TypeScript, and no mistake', () => {
  const tsc = path.join(here, '../../internal/api/clientgen/testdata/node_modules/typescript/lib/tsc.js')
  assert.ok(fs.existsSync(tsc), 'run make node-packages')
  const { status, stdout } = spawnSync(process.execPath, [tsc, '--noEmit', '--strict', '--exactOptionalPropertyTypes',
    '--target', 'es2022', '--module', 'nodenext', 'testdata/types.mts'], { cwd: here, encoding: 'utf8' })
  assert.strictEqual(stdout, '')
  assert.strictEqual(status, 0)
})
