'use strict'
/* The life of the process, from the handshake to its exit. Numbers in comments are steps of docs/plugins/any-language.md. */
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const protobuf = require('protobufjs')
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')
const { selfSigned } = require('./certificate.js')
const { STOPPING } = require('./outcome.js')

const COOKIE = '6a0b4f0e-ledgerd'
const VERSION = '1'
const MAX_MESSAGE = 16 << 20 // bytes
const ORPHAN_TIME = 500 // ms for functions to stop when ledgerd is gone
const FLUSH_TIME = 500 // ms for the last answer to leave

// The protocol is not read from a file, so that the SDK and a plugin can be one file (see bundle.js).
const messages = protobuf.parse(require('./proto.js'), { keepCase: true }).root.toJSON()
const proto = grpc.loadPackageDefinition(loader.fromJSON(messages, { keepCase: true, longs: String, enums: String, defaults: true }))

// 7: stdout is for the handshake alone; the plugin's modules may print while they are loaded.
if (process.env.LEDGERD_PLUGIN === COOKIE) process.stdout.write = process.stderr.write.bind(process.stderr)

/** A call whose request does not matter and whose answer is always the same. */
function fixed(name, answer) {
  const asIs = (bytes) => bytes
  return { path: name, requestStream: false, responseStream: false, requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: () => answer, responseDeserialize: asIs }
}
const health = { Check: fixed('/grpc.health.v1.Health/Check', Buffer.from([0x08, 0x01])) } // status: SERVING
const controller = { Shutdown: fixed('/plugin.GRPCController/Shutdown', Buffer.alloc(0)) }

function fail(message) {
  process.stderr.write(message + '\n')
  process.exit(1)
}

/** @param {import('./service.js').Service} service */
function serve(service) {
  const env = process.env
  const { name, version } = service.plugin
  if (env.LEDGERD_PLUGIN !== COOKIE) { // 1
    fail(`${name} ${version} is a plugin of ledgerd, which starts it by itself:\n\n  ledgerd run ${name} INPUT…\n  ledgerd plugin check ${process.argv[1]}`)
  }
  if (!(env.PLUGIN_PROTOCOL_VERSIONS ?? VERSION).split(',').includes(VERSION)) { // 2
    fail(`${name} speaks protocol ${VERSION}, this ledgerd speaks ${env.PLUGIN_PROTOCOL_VERSIONS}`)
  }
  const socket = path.join(fs.mkdtempSync(path.join(env.PLUGIN_UNIX_SOCKET_DIR ?? os.tmpdir(), 'node')), 's') // 3
  let credentials = grpc.ServerCredentials.createInsecure()
  let certificate = ''
  if (env.PLUGIN_CLIENT_CERT) { // 4
    const { key, cert, raw } = selfSigned()
    certificate = raw.toString('base64').replace(/=+$/, '')
    credentials = grpc.ServerCredentials.createSsl(Buffer.from(env.PLUGIN_CLIENT_CERT),
      [{ private_key: Buffer.from(key), cert_chain: Buffer.from(cert) }], true)
  }
  const server = new grpc.Server({ 'grpc.max_receive_message_length': MAX_MESSAGE, 'grpc.max_send_message_length': MAX_MESSAGE })
  server.addService(health, { Check: (_, reply) => reply(null, {}) }) // 5
  server.addService(controller, {
    Shutdown: (_, reply) => {
      reply(null, {})
      setTimeout(() => process.exit(0), FLUSH_TIME)
      server.tryShutdown(() => process.exit(0))
    }
  })
  server.addService(proto.ledgerd.plugin.v1.Plugin.service, service.handlers())
  forget(env)
  watch(service, server)
  server.bindAsync('unix:' + socket, credentials, (err) => {
    if (err) fail(`no socket: ${err.message}`)
    fs.writeSync(1, `1|${VERSION}|unix|${socket}|grpc|${certificate}\n`) // 6
  })
}

/** A program that the plugin starts, perhaps ledgerd, is no plugin. */
function forget(env) {
  for (const name of ['LEDGERD_PLUGIN', 'PLUGIN_PROTOCOL_VERSIONS', 'PLUGIN_CLIENT_CERT', 'PLUGIN_MIN_PORT', 'PLUGIN_MAX_PORT',
    'PLUGIN_UNIX_SOCKET_DIR', 'PLUGIN_UNIX_SOCKET_GROUP', 'PLUGIN_MULTIPLEX_GRPC']) delete env[name]
}

/** Ends the process with ledgerd, which holds the other end of stdin, or when it is told to. */
function watch(service, server) {
  let gone = false
  const orphan = async () => {
    if (gone) return
    gone = true
    setTimeout(() => process.exit(1), ORPHAN_TIME)
    service.session?.stopRunning(STOPPING)
    await service.session?.drain(0)
    await service.close()
    process.exit(1)
  }
  process.stdin.on('end', orphan).on('error', orphan).resume() // 7
  process.on('SIGINT', () => {}) // ledgerd stops plugins
  let told = false
  process.on('SIGTERM', async () => { // begun items are finished; a second SIGTERM stops them
    if (told) return service.session?.stopRunning(STOPPING)
    told = true
    await service.session?.drain(Infinity)
    await service.close()
    setTimeout(() => process.exit(0), FLUSH_TIME)
    server.tryShutdown(() => process.exit(0))
  })
}

module.exports = { serve }
