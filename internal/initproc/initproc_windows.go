package initproc

// Needed returns false: Windows has no orphans to wait for.
func Needed() bool { return false }

// Main is never needed.
func Main() {}
