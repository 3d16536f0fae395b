package plugin

import (
	"context"
	"encoding/json"
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

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// checkRow is one check of a plugin.
type checkRow struct {
	Group    string  `json:"group"`
	Check    string  `json:"check"`
	About    string  `json:"about"`
	Result   string  `json:"result"` // ok, failed or "not checked"
	OK       bool    `json:"ok"`     // it did not fail; it may not have been checked
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

func pluginCheckCommand(a *app.App) *cobra.Command {
	var t pluginFlags
	var quick bool
	var input string
	cmd := &cobra.Command{
		Use: "check NAME|PATH", Short: "Check how a plugin behaves; exit 1 if something is wrong", Args: app.Arguments(1, 1),
		Long: `Starts the plugin several times and checks what ledgerd relies on, in the order of a plugin's life: that it
starts, describes itself, refuses wrong input, gives every item one result, and ends when it is told to and
when ledgerd is gone. Its examples are worked several times, and so is what --input names. For each failed check it prints what was expected,
what happened and what to do.
Fields: group, check, about, result (ok, failed, not checked), ok, error, expected, do, ms.`,
		Example: "  ledgerd plugin check ./ledgerd-plugin-thumbs\n  ledgerd plugin check thumbs --with width=100 --quick",
		RunE: func(cmd *cobra.Command, args []string) error {
			examples, err := examplesOf(a, input)
			if err != nil {
				return err
			}
			return pluginCheck(cmd.Context(), a, args[0], t, func(target *conformance.Target) {
				target.Quick, target.Examples = quick, examples
			})
		},
	}
	t.define(a, cmd.Flags())
	cmd.Flags().BoolVar(&quick, "quick", false, "leave out the checks of times, for machines where times mean nothing")
	cmd.Flags().StringVar(&input, "input", "", "`file` with more examples, or - for stdin: payloads in JSON of items that "+
		"the plugin is to end as done")
	return cmd
}

// examplesOf reads the payloads of a file, "-" for stdin, "" for none.
func examplesOf(a *app.App, file string) (all []*wire.Example, err error) {
	if file == "" {
		return nil, nil
	}
	in := a.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, failure.Usage("bad_input", "", "--input: %s", err.Error())
		}
		defer f.Close()
		in = f
	}
	for payloads := json.NewDecoder(in); ; {
		var payload json.RawMessage
		var err error
		if stop := a.Await(func() { err = payloads.Decode(&payload) }); stop != nil {
			return nil, stop
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil || payload[0] != '{' {
			return nil, failure.Usage("bad_input", `such as {"path": "a.csv"}`, "--input %s: example %d is no JSON object", file,
				len(all)+1)
		}
		all = append(all, &wire.Example{Payload: payload})
	}
}

func pluginCheck(ctx context.Context, a *app.App, name string, t pluginFlags, edit func(*conformance.Target)) error {
	target, err := checkTarget(ctx, a, name, t)
	if err != nil {
		return err
	}
	edit(&target)
	target, end := target.Share()
	defer end()
	p := a.Printer()
	out, err := report.NewRows[checkRow](p, []string{"group", "check", "result", "about"}, nil)
	if err != nil {
		return err
	}
	var rows []checkRow
	stopped, failed, timedOut := "", 0, 0 // stopped: why the other checks are not made
	for _, c := range conformance.Checks(target) {
		row, err := Checked(ctx, c, target)
		if err != nil {
			return err
		}
		rows = append(rows, row.checkRow)
		if err := out.Write(row.checkRow); err != nil {
			return err
		}
		if row.Result == checkFailed {
			failed++
		}
		if row.timedOut {
			timedOut++
		}
		switch {
		case row.neverStarts:
			stopped = "it does not start, so nothing else can be checked"
		case row.Result == checkFailed && row.Check == conformance.Config:
			stopped = "it does not accept its config, so nothing else can be checked"
		case timedOut == MaxTimedOut:
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
		explainChecks(a, rows)
	}
	if failed > 0 {
		return failure.New(failure.ExitError, "check_failed", fmt.Sprintf("plugin %s: %s failed", name,
			report.Plural(int64(failed), "check")), stopped)
	}
	return nil
}

// MaxTimedOut is the number of checks without an answer after which the others are not made.
const MaxTimedOut = 3

// verdict is a row, with what may end the checks early.
type verdict struct {
	checkRow
	neverStarts bool
	timedOut    bool
}

// Checked makes one check. It returns an error only if ctx has ended.
func Checked(ctx context.Context, c conformance.Check, target conformance.Target) (verdict, error) {
	v := verdict{checkRow: checkRow{Group: c.Group, Check: c.Name, About: c.About, Result: checkOK, OK: true}}
	began := time.Now()
	err := c.Run(ctx, target)
	v.MS = float64(time.Since(began).Microseconds()) / 1000
	switch f, ok := errors.AsType[*conformance.Failure](err); {
	case ok:
		v.Result, v.OK = checkFailed, false
		v.Error, v.Expected, v.Do, v.timedOut = f.Happened, f.Expected, f.Do, f.TimedOut
		_, refused := errors.AsType[*pluginproc.StartError](err)
		// The other checks of the start start it in other ways.
		v.neverStarts = refused && (c.Group != conformance.GroupStart || c.Name == conformance.Handshake)
	case errors.Is(err, conformance.ErrNotChecked):
		v.Result, v.Error = checkNot, strings.TrimPrefix(err.Error(), conformance.ErrNotChecked.Error()+": ")
	case err != nil:
		return v, err
	}
	return v, nil
}

// explainChecks prints below the table the failed checks, and the checks that were not made.
func explainChecks(a *app.App, rows []checkRow) {
	var b strings.Builder
	unknown := map[string][]string{} // checks that were not made, by reason
	for _, row := range rows {
		switch row.Result {
		case checkNot:
			unknown[row.Error] = append(unknown[row.Error], row.Check)
		case checkFailed:
			fmt.Fprintf(&b, "\n%s\n", row.Check)
			for _, part := range []struct{ name, text string }{{"expected", row.Expected}, {"happened", row.Error},
				{"do", row.Do}} {
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
	if n := len(unknown[conformance.NoExamples]); n > 0 {
		fmt.Fprintf(&b, "\n%s of your function were not made\n", report.Plural(int64(n), "check"))
	}
	_, _ = io.WriteString(a.Stdout, b.String())
}

// checkTarget returns the plugin to check. A plugin that does not describe itself is checked, too: the checks report
// why. Embedded means that a person cannot start it as a program of its own.
func checkTarget(ctx context.Context, a *app.App, name string, t pluginFlags) (conformance.Target, error) {
	p, err := pluginAt(ctx, a, name, t)
	if p == nil || err != nil && (len(t.with) > 0 || p.Spec.Place.Broken != "") || ctx.Err() != nil {
		return conformance.Target{}, err
	}
	target := conformance.Target{Name: calledHere(p.Spec.Place), Spec: p.Spec.Proc(),
		Embedded: p.Spec.Place.Origin == "bundled"}
	target.Spec.OnLog = func(source, line string) { a.Log.Debug(line, "plugin", name, "from", source) }
	if p.Description == nil {
		return target, nil
	}
	config, err := a.PluginConfig(p.Name, p, t.with)
	if err != nil {
		return target, err
	}
	target.Config, target.Secrets, err = p.Config.Split(config)
	return target, err
}

// calledHere returns the name that a plugin must have in its description, "" if any will do.
func calledHere(place pluginhost.Place) string {
	if program, ok := strings.CutPrefix(filepath.Base(place.Path), pluginstore.Prefix); ok && place.Name == "" {
		return program
	}
	return place.Name
}
