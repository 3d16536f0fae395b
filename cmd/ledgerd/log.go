package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// logger writes what packages have to say to stderr: warnings, and with -v everything.
func (a *app) logger() *slog.Logger {
	if a.log != nil {
		return a.log
	}
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

// logLevels are the values of log_level.
var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// daemonLogger writes what a daemon has to say to stderr: text on a terminal, otherwise JSON, as
// log_format says. -v and -q count before log_level, which may change while it runs.
func (a *app) daemonLogger() *slog.Logger {
	if a.level == nil {
		a.level = &slog.LevelVar{}
	}
	switch {
	case a.quiet:
		a.level.Set(slog.LevelError)
	case a.verbose:
		a.level.Set(slog.LevelDebug)
	default:
		a.level.Set(logLevels[a.config.LogLevel])
	}
	if a.config.LogFormat == "text" || a.config.LogFormat == "auto" && isTerminal(a.stderr) {
		return slog.New(tint.NewTextHandler(a.stderr, &tint.Options{Level: a.level, TimeFormat: time.DateTime, NoColor: !a.colored(), ReplaceAttr: redactAttr}))
	}
	return slog.New(slog.NewJSONHandler(report.JSONLines(a.stderr), &slog.HandlerOptions{Level: a.level, ReplaceAttr: redactAttr}))
}

// redactAttr hides the passwords of URLs, wherever they come from.
func redactAttr(_ []string, attr slog.Attr) slog.Attr {
	switch v := attr.Value.Any().(type) {
	case string:
		attr.Value = slog.StringValue(redact.Text(v))
	case error:
		attr.Value = slog.StringValue(redact.Text(v.Error()))
	}
	return attr
}
