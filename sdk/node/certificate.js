'use strict'
/*
 * The certificate of this process, for the TLS between ledgerd and this plugin. Node can sign and read certificates but
 * not make one, and a library that makes one depends on a dozen packages. So its few fields are written here: ECDSA on
 * P-256, for the name "localhost" that ledgerd expects.
 */
const crypto = require('node:crypto')

const SEQUENCE = 0x30
const SET = 0x31
const INTEGER = 0x02
const BIT_STRING = 0x03
const OCTET_STRING = 0x04
const OBJECT = 0x06
const UTF8 = 0x0c
const UTC_TIME = 0x17
const VERSION = 0xa0 // [0] of a certificate
const EXTENSIONS = 0xa3 // [3] of a certificate
const DNS_NAME = 0x82 // [2] of a name

const ECDSA_WITH_SHA256 = Buffer.from('2a8648ce3d040302', 'hex') // 1.2.840.10045.4.3.2
const COMMON_NAME = Buffer.from('550403', 'hex') // 2.5.4.3
const ALTERNATIVE_NAME = Buffer.from('551d11', 'hex') // 2.5.29.17

/** One value in DER: its tag, its length, and its parts. */
function der(tag, ...parts) {
  const body = Buffer.concat(parts)
  const n = body.length
  const length = n < 0x80 ? [n] : n < 0x100 ? [0x81, n] : [0x82, n >> 8, n & 0xff]
  return Buffer.concat([Buffer.from([tag, ...length]), body])
}

/** A time as YYMMDDhhmmssZ. */
function utc(ms) {
  return der(UTC_TIME, Buffer.from(new Date(ms).toISOString().replace(/\D/g, '').slice(2, 14) + 'Z'))
}

/**
 * Makes a key and a certificate for it, valid from an hour ago for ten years.
 * @returns {{key: string, cert: string, raw: Buffer}} both in PEM, the certificate also in DER
 */
function selfSigned() {
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const hour = 3_600_000
  const localhost = Buffer.from('localhost')
  const name = der(SEQUENCE, der(SET, der(SEQUENCE, der(OBJECT, COMMON_NAME), der(UTF8, localhost))))
  const algorithm = der(SEQUENCE, der(OBJECT, ECDSA_WITH_SHA256))
  const serial = crypto.randomBytes(16)
  serial[0] = (serial[0] & 0x3f) | 0x40 // positive, and no zero in front
  const signed = der(SEQUENCE,
    der(VERSION, der(INTEGER, Buffer.from([2]))), // version 3
    der(INTEGER, serial), algorithm, name,
    der(SEQUENCE, utc(Date.now() - hour), utc(Date.now() + 10 * 365 * 24 * hour)),
    name, publicKey.export({ type: 'spki', format: 'der' }),
    der(EXTENSIONS, der(SEQUENCE, der(SEQUENCE, der(OBJECT, ALTERNATIVE_NAME),
      der(OCTET_STRING, der(SEQUENCE, der(DNS_NAME, localhost)))))))
  const signature = crypto.sign('sha256', signed, privateKey)
  const raw = der(SEQUENCE, signed, algorithm, der(BIT_STRING, Buffer.from([0]), signature))
  const cert = `-----BEGIN CERTIFICATE-----\n${raw.toString('base64').replace(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`
  return { key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })), cert, raw }
}

module.exports = { selfSigned }
