package app

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// commandLogger returns the log of a command that is no daemon: warnings go to stderr; with -q errors only, with -v
// everything.
func (a *App) commandLogger() *slog.Logger {
	level := slog.LevelWarn
	switch {
	case a.Quiet:
		level = slog.LevelError
	case a.Verbose:
		level = slog.LevelDebug
	}
	return slog.New(tint.NewTextHandler(a.Stderr, &tint.Options{Level: level, TimeFormat: time.TimeOnly,
		NoColor: !a.colored(), ReplaceAttr: redactAttr}))
}

// colored reports whether stderr may have colours (https://no-color.org).
func (a *App) colored() bool {
	switch a.color.Value {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(a.Stderr)
}

// DaemonLogger returns the log of a daemon, in the log_format of the config; "auto" is text on a terminal and JSON
// elsewhere. -v and -q go before log_level. A second call takes over a new log_level for all loggers of the daemon.
func (a *App) DaemonLogger() *slog.Logger {
	if a.level == nil {
		a.level = &slog.LevelVar{}
	}
	switch {
	case a.Quiet:
		a.level.Set(slog.LevelError)
	case a.Verbose:
		a.level.Set(slog.LevelDebug)
	default:
		_ = a.level.UnmarshalText([]byte(a.Config.LogLevel)) // the config has checked it
	}
	if a.Config.LogFormat == "text" || a.Config.LogFormat == "auto" && IsTerminal(a.Stderr) {
		return slog.New(tint.NewTextHandler(a.Stderr, &tint.Options{Level: a.level, TimeFormat: time.DateTime,
			NoColor: !a.colored(), ReplaceAttr: redactAttr}))
	}
	return slog.New(slog.NewJSONHandler(report.JSONLines(a.Stderr), &slog.HandlerOptions{Level: a.level,
		ReplaceAttr: redactAttr}))
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
