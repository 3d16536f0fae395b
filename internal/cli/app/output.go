package app

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
)

// Output is where a command writes. It remembers the first write that failed, so that a command fails whose output was
// lost, also if it did not look.
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

// Lost is why output was lost, nil if none was.
func (o *Output) Lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// One prints one value: as JSON, as a row, or as text for people.
func One[T any](a *App, v T, text string) error {
	switch p := a.Printer(); {
	case p.Format == report.JSON || p.Format == report.JSONL:
		return p.Object(v)
	case p.Format == report.CSV || p.Columns != nil:
		_, err := report.List(p, Each([]T{v}))
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, text)
	return err
}

// OrExitEmpty returns err, or with --error-on-empty the exit status of a command that did or showed nothing: n is 0.
func (a *App) OrExitEmpty(n int, err error) error {
	if err == nil && n == 0 && a.ErrorOnEmpty {
		return failure.Status(failure.ExitEmpty)
	}
	return err
}

// Each yields the rows of a list that is at hand.
func Each[T any](rows []T) func(yield func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for row := range slices.Values(rows) {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// ShortKey shows paths as people typed them: from the working directory.
func ShortKey() func(key string) string {
	cwd, err := os.Getwd()
	return func(key string) string {
		if err == nil && filepath.IsAbs(key) {
			if rel, err := filepath.Rel(cwd, key); err == nil && !strings.HasPrefix(rel, "..") {
				return rel
			}
		}
		return key
	}
}
