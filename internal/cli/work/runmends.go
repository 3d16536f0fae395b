package work

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
)

// checkMend refuses a file of --mend that is there, before anything is worked: it may have been changed by hand.
func checkMend(path string) error {
	if path == "" {
		return nil
	}
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return failure.Usage("bad_flag", "name another file, or remove that one", "--mend %s: is there already", path)
	case !errors.Is(err, fs.ErrNotExist):
		return failure.Usage("bad_flag", "", "--mend: %v", err)
	case !strings.HasSuffix(path, ".csv"):
		return failure.Usage("bad_flag", "", "--mend %s: is a table, so its name ends in .csv", path)
	}
	return nil
}

// freeMend is a name for a table of --mend that no file has yet.
func freeMend() string {
	name := "mend.csv"
	for n := 2; checkMend(name) != nil && n < 100; n++ {
		name = fmt.Sprintf("mend-%d.csv", n)
	}
	return name
}

// shownMends is how many settings a line names.
const shownMends = 4

// tellMends proposes the settings that would mend inputs, or writes the table of --mend.
func (r *inputRun) tellMends(ctx context.Context, p *report.Printer, s *Summary) error {
	input := r.Kind.Input().Field
	if len(s.Mends) == 0 || input == "" || r.App.Got.Load() != 0 {
		return nil
	}
	var parts []string
	for i, m := range s.Mends {
		if i < shownMends {
			parts = append(parts, report.Count(m.Count)+" with "+app.QuoteSet(m.Set))
		}
	}
	if n := len(s.Mends) - shownMends; n > 0 {
		parts = append(parts, report.Plural(int64(n), "further setting"))
	}
	r.App.Advise(p.Out, "may be mended: %s\n", strings.Join(parts, "; "))
	again := ""
	if len(r.tracker.Advised) > 0 {
		again = " --again" // what is done is worked once more
	}
	if r.flags.mend == "" && r.tracker.Failures.Mendable > 1 {
		r.App.Advise(p.Out, "  with --mend %[1]s this command writes them into a table; then: ledgerd run %[2]s --from %[1]s%[3]s\n",
			freeMend(), r.Kind.Name, again)
		return nil
	}
	mendable, err := r.mendable(ctx)
	switch {
	case err != nil:
		return err
	case r.flags.mend != "":
		if err := writeMends(r.flags.mend, input, mendable); err != nil {
			return err
		}
		r.App.Advise(p.Out, "  %s in %s: look through it, then: ledgerd run %s --from %[2]s%[4]s\n",
			report.Plural(int64(len(mendable)), "input"), shell.Quote(r.flags.mend), r.Kind.Name, again)
	case len(mendable) == 1:
		r.App.Advise(p.Out, "  %s%s\n", app.RunWith(r.Kind.Name, mendable[0].key, mendable[0].sets...), again)
	}
	return nil
}

// mendable is an input with the settings that its error or its advice proposes.
type mendable struct {
	key, why string
	sets     []string
}

func (r *inputRun) mendable(ctx context.Context) (all []mendable, err error) {
	for ids := range slices.Chunk(r.tracker.Mendable(), page) {
		for it, err := range r.Ledger.Walk(ctx, &ledger.Walk{Filter: ledger.IDs(ids...), Output: true}) {
			if err != nil {
				return nil, err
			}
			why := cmp.Or(it.Error, runner.AdviceOf(it.Output))
			if sets := report.Proposed(why); len(sets) > 0 {
				all = append(all, mendable{it.Key, report.Safe(why), sets})
			}
		}
	}
	return all, nil
}

// reasonColumn is for people: intake passes over columns that begin with #.
const reasonColumn = "#error"

// writeMends writes the table of --mend: a row for each input, with its settings, and why. A value that a person has to
// choose is an empty cell.
func writeMends(path, input string, inputs []mendable) (err error) {
	columns := []string{input}
	for _, m := range inputs {
		for _, set := range m.sets {
			if name, _, _ := strings.Cut(set, "="); !slices.Contains(columns, name) {
				columns = append(columns, name)
			}
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("--mend: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := csv.NewWriter(file)
	if err := w.Write(append(columns, reasonColumn)); err != nil {
		return err
	}
	for _, m := range inputs {
		cells := make([]string, len(columns)+1)
		cells[0], cells[len(columns)] = m.key, m.why
		for _, set := range m.sets {
			if name, value, _ := strings.Cut(set, "="); value != report.Choose {
				cells[slices.Index(columns, name)] = value
			}
		}
		if err := w.Write(cells); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
