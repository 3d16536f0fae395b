package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/report"
)

// One prints one value: as JSON, as a row, or as text for people.
func One[T any](a *App, v T, text string) error {
	switch p := a.Printer(); p.Format {
	case report.JSON, report.JSONL:
		return p.Object(v)
	case report.CSV:
		_, err := report.List(p, Each([]T{v}))
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, text)
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
