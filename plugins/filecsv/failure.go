package filecsv

import (
	"errors"
	"fmt"
)

// failure says why a file could not be worked: a code to count by, a text for people, and
// whether it can be otherwise the next time.
type failure struct {
	code  string
	text  string
	again bool
}

func (f *failure) Error() string { return f.text }

// refuse is a failure that lasts until somebody changes the file or the item.
func refuse(code, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

// tryAgain is a failure that may be gone the next time.
func tryAgain(code, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...), again: true}
}

// codeOf returns the code of a failure, or "".
func codeOf(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	return ""
}

// badRows is the code of the one failure that comes after the whole file was read.
const badRows = "bad_rows"

var errChanged = tryAgain("changed_while_reading", "the file changed while it was read")
