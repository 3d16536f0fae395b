'use strict'
/*
 * Makes one file of a program and of every module that it requires, for `ledgerd plugin add`:
 *
 *   node bundle.js ledgerd-plugin-NAME dist/ledgerd-plugin-NAME
 *
 * It takes CommonJS and JSON by require('NAME'). It takes no ES modules, no native modules, and no files that are read
 * at run time. For these there are bundlers.
 */
const fs = require('node:fs')
const path = require('node:path')
const vm = require('node:vm')
const { builtinModules, createRequire } = require('node:module')

const PARAMETERS = ['module', 'exports', 'require', '__filename', '__dirname']

const isBuiltin = (name) => name.startsWith('node:') || builtinModules.includes(name)

/** Lists the program and its modules. needs of each has the places in the list of the modules that it requires. */
function collect(program) {
  const list = []
  const places = new Map() // by file
  const add = (file) => {
    if (places.has(file)) return places.get(file)
    const place = list.length
    const module = { text: fs.readFileSync(file, 'utf8'), needs: {} }
    places.set(file, place)
    list.push(module)
    switch (path.extname(file)) {
      case '.json': // not as code, where __proto__ is no name
        module.text = `module.exports = JSON.parse(${JSON.stringify(JSON.stringify(JSON.parse(module.text)))})`
        return place
      case '.mjs':
      case '.node': throw new Error(`${file} cannot be taken: it is no CommonJS module`)
    }
    module.text = module.text.replace(/^#!.*/, '')
    vm.compileFunction(module.text, PARAMETERS, { filename: file }) // throws if it is an ES module by another name
    const { resolve } = createRequire(file)
    for (const [, , name] of module.text.matchAll(/\brequire\s*\(\s*(['"`])([^'"`$\n]+)\1\s*\)/g)) {
      if (isBuiltin(name)) continue
      let found
      try {
        found = resolve(name)
      } catch (err) { // packages require others that are optional, and have examples in comments
        if (!file.split(path.sep).includes('node_modules')) throw err
        continue
      }
      module.needs[name] = add(found)
    }
    return place
  }
  add(program)
  return list
}

/** Runs the first of the modules. It is copied into the file. */
function start(modules) {
  const loaded = []
  const load = (place) => {
    if (loaded[place]) return loaded[place].exports
    const module = loaded[place] = { exports: {}, filename: __filename }
    const [code, needs] = modules[place]
    const get = Object.assign((name) => Object.hasOwn(needs, name) ? load(needs[name]) : require(name), require)
    get.main = loaded[0]
    code.call(module.exports, module, module.exports, get, __filename, __dirname)
    return module.exports
  }
  load(0)
}

/** The text of the one file. */
function bundle(program) {
  const modules = collect(fs.realpathSync(program)).map(({ text, needs }) =>
    `[function (${PARAMETERS}) {${text}\n}, ${JSON.stringify(needs)}]`)
  return `#!/usr/bin/env node\n(${start})([${modules.join(',\n')}])\n`
}

module.exports = { bundle }

if (require.main === module) {
  const [program, out] = process.argv.slice(2)
  if (!out || path.resolve(program) === path.resolve(out)) {
    console.error('usage: node bundle.js PROGRAM FILE')
    process.exit(2)
  }
  const text = bundle(program)
  fs.mkdirSync(path.dirname(out), { recursive: true })
  fs.writeFileSync(out + '.new', text, { mode: 0o755 })
  fs.renameSync(out + '.new', out) // not through a link, which may lead to the program
}
