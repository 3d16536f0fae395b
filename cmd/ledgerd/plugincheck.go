package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/internal/report"
)

// checkRow is one check of a plugin.
type checkRow struct {
	Group    string  `json:"group"`
	Check    string  `json:"check"`
	About    string  `json:"about"`
	Result   string  `json:"result"` // ok, failed or "not checked"
	OK       bool    `json:"ok"`     // nothing is known to be wrong
	Error    string  `json:"error"`  // what happened, or why it was not checked
	Expected string  `json:"expected"`
	Do       string  `json:"do"`
	MS       float64 `json:"ms"`
}

// Results of a check.
const (
	checkOK     = "ok"
	checkFailed = "failed"
	checkNot    = "not checked"
)

// author is what the commands for authors know of the plugin that they try.
type author struct {
	dirs   pluginDirs
	with   []string
	noMTLS bool
}

func (t *author) define(f *pflag.FlagSet) {
	t.dirs.define(f)
	f.StringArrayVar(&t.with, "with", nil, "`NAME=VALUE` of the plugin's config; repeated")
	f.BoolVar(&t.noMTLS, "no-mtls", false, "speak with it without TLS, as mtls = false in the config does: for languages that cannot")
}

func (a *app) pluginCheckCommand() *cobra.Command {
	var t author
	var quick bool
	var junit string
	cmd := &cobra.Command{
		Use: "check NAME|PATH", Short: "Check how a plugin behaves; exit 1 if something is wrong", Args: arguments(1, 1),
		Long: `Starts the plugin several times and checks what ledgerd relies on, in the order of a plugin's life: that it
starts as it should, says what it is, refuses what does not fit, gives every item one result, and ends
when it is told to and when ledgerd is gone. Its examples are worked, several times. Of what fails it
says what was expected, what happened and what to do.
Fields: group, check, about, result (ok, failed, not checked), ok, error, expected, do, ms.`,
		Example: "  ledgerd plugin check ./ledgerd-plugin-thumbs\n  ledgerd plugin check thumbs --with width=100 --quick --junit report.xml",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pluginCheck(cmd.Context(), args[0], t, quick, junit)
		},
	}
	t.define(cmd.Flags())
	cmd.Flags().BoolVar(&quick, "quick", false, "leave out the checks of times, for machines where times mean nothing")
	cmd.Flags().StringVar(&junit, "junit", "", "also write the results to this `file`, as JUnit's XML")
	return cmd
}

func (a *app) pluginCheck(ctx context.Context, name string, t author, quick bool, junit string) error {
	target, err := a.checkTarget(ctx, name, t)
	if err != nil {
		return err
	}
	target.Quick = quick
	p := a.printer()
	out, err := report.NewRows[checkRow](p, []string{"group", "check", "result", "about"}, nil)
	if err != nil {
		return err
	}
	var rows []checkRow
	stopped, timedOut := "", 0
	for _, c := range conformance.Checks(target) {
		row, err := checked(ctx, c, target)
		if err != nil {
			return err
		}
		rows = append(rows, row.checkRow)
		if err := out.Write(row.checkRow); err != nil {
			return err
		}
		if row.timedOut {
			timedOut++
		}
		switch {
		case row.neverStarts:
			stopped = "it does not start, so nothing else can be checked"
		case timedOut == maxTimedOut:
			stopped = fmt.Sprintf("%d checks have run out of time, so nothing else was checked", timedOut)
		}
		if stopped != "" {
			break
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	if p.Format == report.Table {
		a.explainChecks(rows)
	}
	if junit != "" {
		if err := writeJUnit(junit, name, rows); err != nil {
			return err
		}
	}
	if n := failedChecks(rows); n > 0 {
		return fail(exitError, "check_failed", fmt.Sprintf("plugin %s: %s failed", name, plural(int64(n), "check")), stopped)
	}
	return nil
}

// maxTimedOut is after how many checks without an answer there is no point in waiting for more.
const maxTimedOut = 3

// verdict is a row, and whether there is a point in going on.
type verdict struct {
	checkRow
	neverStarts bool
	timedOut    bool
}

// checked makes one check; the error is that of ctx.
func checked(ctx context.Context, c conformance.Check, target conformance.Target) (verdict, error) {
	v := verdict{checkRow: checkRow{Group: c.Group, Check: c.Name, About: c.About, Result: checkOK, OK: true}}
	began := time.Now()
	err := c.Run(ctx, target)
	v.MS = float64(time.Since(began).Microseconds()) / 1000
	switch f, ok := errors.AsType[*conformance.Failure](err); {
	case ok:
		v.Result, v.OK = checkFailed, false
		v.Error, v.Expected, v.Do, v.timedOut = f.Happened, f.Expected, f.Do, f.TimedOut
		_, refused := errors.AsType[*pluginproc.StartError](err)
		v.neverStarts = refused && c.Group != conformance.GroupStart // those start it in other ways
	case errors.Is(err, conformance.ErrNotChecked):
		v.Result, v.Error = checkNot, strings.TrimPrefix(err.Error(), conformance.ErrNotChecked.Error()+": ")
	case err != nil:
		return v, err
	}
	return v, nil
}

func failedChecks(rows []checkRow) int {
	n := 0
	for _, row := range rows {
		if row.Result == checkFailed {
			n++
		}
	}
	return n
}

// explainChecks says below the table what is wrong, and what nobody knows.
func (a *app) explainChecks(rows []checkRow) {
	var b strings.Builder
	unknown := map[string][]string{} // checks that were not made, by reason
	for _, row := range rows {
		switch row.Result {
		case checkNot:
			unknown[row.Error] = append(unknown[row.Error], row.Check)
		case checkFailed:
			fmt.Fprintf(&b, "\n%s\n", row.Check)
			for _, part := range []struct{ name, text string }{{"expected", row.Expected}, {"happened", row.Error}, {"do", row.Do}} {
				name := part.name
				for line := range strings.SplitSeq(part.text, "\n") {
					fmt.Fprintf(&b, "  %-9s %s\n", name, report.Safe(line))
					name = ""
				}
			}
		}
	}
	for _, why := range slices.Sorted(maps.Keys(unknown)) {
		fmt.Fprintf(&b, "\nnot checked: %s\n  %s\n", strings.Join(unknown[why], ", "), report.Safe(why))
	}
	_, _ = io.WriteString(a.stdout, b.String())
}

// pluginAt is the plugin that an author tries: a program by its path, or one that is found by
// name.
func (a *app) pluginAt(ctx context.Context, name string, t author) (*plugin, error) {
	p := &plugin{}
	if strings.ContainsRune(name, filepath.Separator) {
		path, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return nil, usage("unknown_plugin", "name a program, or a plugin: ledgerd plugin ls", "%s: there is no such program", name)
		}
		p.spec = a.pluginSpec(pluginhost.Place{Path: path, Origin: "path"})
	} else {
		place, err := a.place(name, t.dirs)
		if isNoPlugin(err) {
			return nil, a.noPlugin(ctx, name, t.dirs)
		}
		if err != nil {
			return nil, err
		}
		p.spec = a.pluginSpec(place)
	}
	p.spec.NoMTLS = p.spec.NoMTLS || t.noMTLS
	var err error
	if p.Description, err = pluginhost.Describe(ctx, p.spec); err != nil {
		return p, pluginError(p.spec.Place, err)
	}
	return p, nil
}

// checkTarget is the plugin to check. One that does not even say what it is is a target, too: the
// checks say why. What is bundled is no program of its own that a person could start.
func (a *app) checkTarget(ctx context.Context, name string, t author) (conformance.Target, error) {
	p, err := a.pluginAt(ctx, name, t)
	if p == nil || err != nil && (len(t.with) > 0 || p.spec.Place.Broken != "") || ctx.Err() != nil {
		return conformance.Target{}, err
	}
	target := conformance.Target{Name: calledHere(p.spec.Place), Spec: p.spec.Proc(), Embedded: p.spec.Place.Origin == "bundled"}
	target.Spec.OnLog = func(source, line string) { a.logger().Debug(line, "plugin", name, "from", source) }
	if p.Description == nil {
		return target, nil
	}
	config, err := a.pluginConfig(p.Name, p, t.with)
	if err != nil {
		return target, err
	}
	target.Config, target.Secrets, err = p.Config.Split(config)
	return target, err
}

// calledHere is what a plugin must call itself, "" if nothing says so.
func calledHere(place pluginhost.Place) string {
	name := cmp.Or(place.Calls, place.Name)
	if program, ok := strings.CutPrefix(filepath.Base(place.Path), pluginstore.Prefix); ok && name == "" {
		return program
	}
	return name
}
