package sdktest_test

import (
	stdjson "encoding/json"
	"fmt"
	"runtime"
	"testing"
)

// failing is a test that may fail: it keeps what Fatal said.
type failing struct {
	testing.TB
	text string
	done chan struct{}
}

func (f *failing) Fatal(args ...any) {
	f.text = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func json(text string) stdjson.RawMessage { return stdjson.RawMessage(text) }
