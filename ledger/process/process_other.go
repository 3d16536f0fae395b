//go:build !linux

package process

// nameOf returns "": only Linux has the data for a name.
func nameOf(int) string { return "" }

func isGone(string, int) bool { return false }
