// Package must stops a test at an error that is not what it is about.
package must

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
