package app

import (
	"cmp"
	"fmt"
	"io"
	"sync"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
)

// Output is stdout. It remembers the first write that failed, so that Conclude reports lost output even if the command
// ignored the error.
type Output struct {
	To io.Writer

	mu  sync.Mutex
	err error
}

func (o *Output) Write(p []byte) (int, error) {
	n, err := o.To.Write(p)
	if err != nil {
		o.mu.Lock()
		o.err = cmp.Or(o.err, err)
		o.mu.Unlock()
	}
	return n, err
}

// Lost returns the error of the first write that failed, nil if none did.
func (o *Output) Lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// One prints one value: as JSON, as a row of CSV or with --columns, or else text.
func One[T any](a *App, v T, text string) error {
	switch p := a.Printer(); {
	case p.Format == report.JSON || p.Format == report.JSONL:
		return p.Object(v)
	case p.Format == report.CSV || p.Columns != nil:
		_, err := report.List(p, report.Each([]T{v}))
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, text)
	return err
}

// OrExitEmpty returns err, or the exit status for an empty result if err is nil, n is 0 and --error-on-empty is given.
func (a *App) OrExitEmpty(n int, err error) error {
	if err == nil && n == 0 && a.ErrorOnEmpty {
		return failure.Status(failure.ExitEmpty)
	}
	return err
}
