package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// problemRow is a mistake in the configuration, or a warning.
type problemRow struct {
	Severity string `json:"severity"` // "error" or "warning"
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Variable string `json:"variable"`
	Key      string `json:"key"`
	Message  string `json:"message"`
	Hint     string `json:"hint"`
}

// checkResult is what config check prints with -o json.
type checkResult struct {
	OK       bool         `json:"ok"`
	File     string       `json:"file"`
	Problems []problemRow `json:"problems"`
}

func configCheckCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the config file and the environment, also with the plugins; exit 2 if something is wrong", Args: app.Arguments(0, 0),
		Annotations: map[string]string{app.WithoutConfig: "yes"},
		Long: `Reports all mistakes at once, each with its place and a suggestion: invalid TOML, unknown keys, wrong values,
plugins and kinds that do not exist, and settings that a plugin refuses. For this it starts each plugin that
the file names. It warns of policies that differ from those in the ledger, and changes nothing. Without mistakes it prints the next look at each source.

With -o json: {"ok","file","problems":[{"severity":"error|warning","file","line","column",
"variable","key","message","hint"}]}; with -o jsonl and csv a row for each problem.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return configCheck(a, cmd)
		},
	}
}

func configCheck(a *app.App, cmd *cobra.Command) error {
	ctx := cmd.Context()
	c, err := a.LoadConfig()
	a.UseConfig(c, cmd.Flags())
	known, unread := a.ReadKinds(ctx)
	err = c.Check(a.WorldOf(ctx, known), err)
	// Kinds that only the ledger knows look like mistakes then. A correct config needs no database that is up.
	away := errors.Is(unread, ledger.ErrUnavailable) || errors.Is(unread, context.DeadlineExceeded)
	if errors.Is(unread, ledger.ErrSchema) || errors.Is(unread, ledger.ErrDenied) || away && err != nil {
		a.Tell(failure.Explain(unread))
	}
	c.Warnings = append(c.Warnings, c.PolicyWarnings(known)...)
	bad, ok := errors.AsType[*config.Error](err)
	if err != nil && !ok {
		return err
	}
	result := checkResult{OK: err == nil, File: c.File, Problems: []problemRow{}}
	if bad != nil {
		result.Problems = append(result.Problems, problemRows("error", bad.Problems)...)
	}
	result.Problems = append(result.Problems, problemRows("warning", c.Warnings)...)
	switch p := a.Printer(); p.Format {
	case report.JSON:
		err = p.Object(result)
	case report.Table:
		err = sayProblems(a, c, bad)
	default:
		_, err = report.List(p, report.Each(result.Problems), "severity", "file", "line", "message", "hint")
	}
	if err == nil && !result.OK {
		err = failure.Status(failure.ExitUsage)
	}
	return err
}

func problemRows(severity string, problems []config.Problem) (rows []problemRow) {
	for _, p := range problems {
		rows = append(rows, problemRow{severity, p.File, p.Line, p.Column, cmp.Or(p.Env, p.Flag), p.Key, p.Message, p.Hint})
	}
	return rows
}

// sayProblems prints problems and warnings for people. Without problems it adds the next times of each source.
func sayProblems(a *app.App, c *config.Config, bad *config.Error) error {
	var b strings.Builder
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	switch {
	case bad != nil:
		fmt.Fprintf(&b, "%s\n%s    exit %d\n", bad, report.Plural(int64(len(bad.Problems)), "problem"), failure.ExitUsage)
	case c.File == "":
		a.Advise(&b, "no config file, and none is needed; one is made by: ledgerd config init\n")
	default:
		fmt.Fprintf(&b, "%s: ok   %s, %s, %s\n", c.File, report.Plural(int64(len(c.Kinds)), "kind"),
			report.Plural(int64(len(c.Sources)), "source"), report.Plural(int64(len(c.Plugins)), "plugin"))
	}
	if bad == nil {
		for _, s := range c.Sources {
			var next []string
			at := time.Now()
			for range 3 {
				at = s.Next(at)
				next = append(next, report.Local(at))
			}
			fmt.Fprintf(&b, "source %s: next %s …\n", s.Name, strings.Join(next, ", "))
		}
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(a.Stdout, report.Safe(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}
