// Package must stops a test at an error that is not what it is about, and at a condition that does not come to hold.
package must

import "time"

// test is a testing.TB or a rapid.T.
type test interface {
	Helper()
	Fatal(args ...any)
}

// OK fails the test and ends it if there is an error.
func OK(t test, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Do is OK for a call with a value that the test does not need: must.Do(t)(l.Add(ctx, item)).
func Do(t test) func(value any, err error) {
	return func(_ any, err error) {
		t.Helper()
		OK(t, err)
	}
}

// patience is how long Eventually waits.
const patience = 5 * time.Minute

// Eventually waits until a condition holds that depends on another process, and fails the test after 5 minutes.
func Eventually(t test, what string, holds func() bool) {
	t.Helper()
	look := time.Tick(10 * time.Millisecond)
	for late := time.After(patience); !holds(); {
		select {
		case <-look:
		case <-late:
			t.Fatal(what, ": not within ", patience)
		}
	}
}
