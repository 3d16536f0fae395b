package sdktest_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
)

// failing is a test that may fail: it keeps the text of Fatal.
type failing struct {
	testing.TB
	text string
	done chan struct{}
}

// failureOf is the text of a test that must fail.
func failureOf(t testing.TB, test func(testing.TB)) string {
	fake := &failing{TB: t, done: make(chan struct{})}
	go func() {
		defer close(fake.done)
		test(fake)
	}()
	<-fake.done
	return fake.text
}

func (f *failing) Errorf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

func (f *failing) Fatal(args ...any) {
	f.text = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *failing) Failed() bool { return f.text != "" }

func (f *failing) FailNow() { runtime.Goexit() }

func raw(text string) json.RawMessage { return json.RawMessage(text) }
