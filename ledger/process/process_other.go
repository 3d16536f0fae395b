//go:build !linux

package process

// nameOf is not known here.
func nameOf(int) string { return "" }

func isGone(string, int) bool { return false }
