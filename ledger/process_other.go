//go:build !linux

package ledger

// processName is not known here.
func processName(int) string { return "" }

func processGone(string, int) bool { return false }
