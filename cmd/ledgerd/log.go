package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// logger writes what packages have to say to stderr: warnings, and with -v everything.
func (a *app) logger() *slog.Logger {
	level := slog.LevelWarn
	switch {
	case a.quiet:
		level = slog.LevelError
	case a.verbose:
		level = slog.LevelDebug
	}
	return slog.New(tint.NewTextHandler(a.stderr, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !a.colored()}))
}

// colored says whether stderr may have colours (https://no-color.org).
func (a *app) colored() bool {
	switch a.color.value {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(a.stderr)
}
