'use strict'
/*
 * Configs and payloads are checked by their JSON Schema. Absent fields get their defaults. A value that does not fit is
 * reported by the name of its field, with dots for nesting, and never by the value: it may be a secret. The keywords
 * x-ledgerd-… are for the host: x-ledgerd-tune marks fields that decide how the work goes, never what a result means.
 */
const Ajv = require('ajv/dist/2020')

const DATA = ['default', 'examples', 'enum', 'const']
const NAMES = ['properties', 'patternProperties', 'dependentSchemas', '$defs', 'definitions']

/** @typedef {{field: string, message: string}} Problem */

class Settings {
  /** @param {object} schema of an object; additionalProperties is false unless it says otherwise */
  constructor(schema = {}) {
    this.schema = { type: 'object', additionalProperties: false, ...schema }
    const ajv = new Ajv({ allErrors: true, useDefaults: true, strictTypes: false })
    ajv.addVocabulary(['x-ledgerd-tune', 'x-ledgerd-single'])
    JSON.stringify(this.schema, (key, value) => {
      if (key === 'format' && typeof value === 'string') ajv.addFormat(value, true) // a note for people
      return value
    })
    ajv.addFormat('go-duration', /^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d|w))+)$/)
    this.validate = ajv.compile(this.schema)
  }

  /** How many secrets are marked, anywhere but in data, as a default. names: the keys of at are no keywords. */
  marked(at = this.schema, names = false) {
    if (at === null || typeof at !== 'object') return 0
    const within = Object.entries(at).map(([word, inner]) =>
      !names && DATA.includes(word) ? 0 : this.marked(inner, !names && NAMES.includes(word)))
    return within.reduce((sum, n) => sum + n, !names && at.writeOnly === true ? 1 : 0)
  }

  /** The fields that are secrets: those with writeOnly. */
  secrets(at = this.schema, path = '') {
    return Object.entries(at.properties ?? {}).flatMap(([name, field]) =>
      field.writeOnly ? [path + name] : this.secrets(field, `${path}${name}.`))
  }

  /**
   * Decodes a value, adds defaults and checks it.
   * @param {Buffer} json nothing is the empty object
   * @param {Object<string,string>} secrets by field
   * @returns {{value: object, problems: Problem[]}}
   */
  read(json, secrets = {}) {
    let value
    try {
      value = json.length === 0 ? {} : JSON.parse(String(json))
    } catch (err) {
      return { value: {}, problems: [{ field: '', message: 'not JSON: ' + err.message }] }
    }
    for (const [name, secret] of Object.entries(secrets)) {
      if (!this.secrets().includes(name)) return { value, problems: [{ field: name, message: 'is not a secret of this plugin' }] }
      const path = name.split('.')
      const last = path.pop()
      path.reduce((at, part) => (at[part] ??= {}), value)[last] = secret
    }
    const problems = this.validate(value) ? [] : this.validate.errors.map(problemOf)
    return { value, problems }
  }
}

function problemOf({ instancePath, keyword, params, message }) {
  const path = instancePath.split('/').slice(1).map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
  if (keyword === 'additionalProperties') return { field: [...path, params.additionalProperty].join('.'), message: 'there is no such field' }
  if (keyword === 'required') return { field: [...path, params.missingProperty].join('.'), message: 'is required' }
  if (keyword === 'enum') message = 'must be one of ' + params.allowedValues.join(', ')
  return { field: path.join('.'), message }
}

module.exports = { Settings }
