package postgres

import "testing"

func TestNative(t *testing.T) {
	if _, err := native("x", "bigint"); err == nil || err.Error() != "a column of type bigint cannot have a string" {
		t.Errorf("a text for a number: %v", err)
	}
	// A copy converts each value of a ledger, so a value that fits must not cost an error.
	if n := testing.AllocsPerRun(10, func() { _, _ = native(int64(1), "boolean") }); n > 0 {
		t.Errorf("a value that fits makes %v allocations", n)
	}
}
