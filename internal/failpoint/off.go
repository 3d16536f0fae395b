//go:build !chaos

package failpoint

// Here does nothing.
func Here(string) {}
