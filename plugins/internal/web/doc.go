// Package web is for plugins that ask servers of strangers over HTTP. It holds the rules for URLs, addresses and
// redirects, and the codes of errors. A plugin that uses it makes the same promises about private addresses and the
// same codes as all others.
//
// hosts.go keeps the pace of each host and lets one that refuses rest; failure.go has the codes of errors and reads
// Retry-After.
package web
