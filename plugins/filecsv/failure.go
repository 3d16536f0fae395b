package filecsv

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/plugins/filecsv/load"
)

// failure explains why a file failed: a code to count by, a text for people, and whether another attempt may succeed.
type failure struct {
	code  string
	text  string
	again bool
}

func (f *failure) Error() string { return f.text }

// refuse returns a failure that lasts until the file or the item changes.
func refuse(code, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

// tryAgain returns a failure that another attempt may not have.
func tryAgain(code, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...), again: true}
}

// verdict returns the code of a failure, of the file or of its load, and whether another attempt may succeed. The
// code of other errors is "".
func verdict(err error) (code string, again bool) {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code, f.again
	}
	if l, ok := errors.AsType[*load.Error](err); ok {
		return l.Code, l.Again
	}
	return "", false
}

// codeOf returns the code of a failure, or "".
func codeOf(err error) string {
	code, _ := verdict(err)
	return code
}

const badEncoding = "bad_encoding"

// badRows is the only code of failures after the whole file was read.
const badRows = "bad_rows"

var errChanged = tryAgain("changed_while_reading", "the file changed while it was read")
