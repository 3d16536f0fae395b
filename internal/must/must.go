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

// Eventually waits until a condition holds that depends on another process, and fails the test after 5 minutes. Between
// two checks it sleeps ten times as long as a check takes, from 10 to 100 ms: tests that wait leave the processors to
// those that work.
func Eventually(t test, what string, holds func() bool) {
	t.Helper()
	late := time.After(patience)
	for began := time.Now(); !holds(); began = time.Now() {
		select {
		case <-time.After(min(max(10*time.Millisecond, 10*time.Since(began)), 100*time.Millisecond)):
		case <-late:
			t.Fatal(what, ": not within ", patience)
		}
	}
}
