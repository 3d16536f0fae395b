// Package lazyregexp compiles patterns when they are first needed: few commands need any of them, and all of them
// together take a tenth of the page faults of a start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled pattern. The function panics if the pattern is malformed.
func New(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
