// Package payload has what is common to payloads of items: the defaults of their fields, one payload over another, and
// texts that are no text. Payloads are JSON by convention.
package payload
