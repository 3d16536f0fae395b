// Package payload has what is common to payloads of items, which are JSON by convention: the defaults of their fields,
// one payload over another, and texts that are no text.
package payload
