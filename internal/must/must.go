// Package must stops a test at an error that is not what it is about.
package must

// OK fails the test and ends it if there is an error. t is a testing.TB or a rapid.T.
func OK(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
