package work

import (
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

// shownMends is how many settings a line names.
const shownMends = 4

// tellMends proposes the settings that would mend failed inputs, or writes the table of --mend.
func (r *inputRun) tellMends(ctx context.Context, p *report.Printer, s *Summary) error {
	input := r.Kind.Input().Field
	if len(s.Mends) == 0 || input == "" || r.App.Got.Load() != 0 {
		return nil
	}
	var total int64
	var parts []string
	for i, m := range s.Mends {
		if total += m.Count; i < shownMends {
			parts = append(parts, report.Count(m.Count)+" with "+quoteSet(m.Set))
		}
	}
	if n := len(s.Mends) - shownMends; n > 0 {
		parts = append(parts, report.Plural(int64(n), "further setting"))
	}
	r.App.Advise(p.Out, "may be mended: %s\n", strings.Join(parts, ", "))
	switch m := s.Mends[0]; {
	case r.flags.mend != "":
		n, err := r.writeMends(ctx, r.flags.mend, input)
		if err != nil {
			return err
		}
		r.App.Advise(p.Out, "  %s in %s: look through it, then: ledgerd run %s --from %[2]s\n", report.Plural(n, "input"),
			shell.Quote(r.flags.mend), r.Kind.Name)
	case total > 1:
		r.App.Advise(p.Out, "  with --mend mend.csv this command writes them into a table; then: ledgerd run %s --from mend.csv\n",
			r.Kind.Name)
	case len(s.Failures) == 1:
		r.App.Advise(p.Out, "  ledgerd run %s %s --set %s\n", r.Kind.Name,
			shell.Quote(app.ShortKey()(s.Failures[0].Examples[0].Key)), quoteSet(m.Set))
	}
	return nil
}

// quoteSet is a setting for a shell, or with a value that a person has to choose.
func quoteSet(set string) string {
	if strings.HasSuffix(set, report.Choose) {
		return set
	}
	return shell.Quote(set)
}

// reasonColumn is for people: intake passes over columns that begin with #.
const reasonColumn = "#error"

// writeMends writes the table of --mend: a row for each failed input, with the setting that its error proposes, and the
// error. A value that a person has to choose is an empty cell.
func (r *inputRun) writeMends(ctx context.Context, path, input string) (n int64, err error) {
	columns, rows := []string{input}, [][3]string{}
	for ids := range slices.Chunk(r.tracker.FailedInputs(), page) {
		for it, err := range r.Ledger.List(ctx, ledger.IDs(ids...), 0) {
			if err != nil {
				return 0, err
			}
			if set := report.Proposed(it.Error); set != "" {
				name, _, _ := strings.Cut(set, "=")
				if !slices.Contains(columns, name) {
					columns = append(columns, name)
				}
				rows = append(rows, [3]string{it.Key, set, report.Safe(it.Error)})
			}
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, fmt.Errorf("--mend: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := csv.NewWriter(file)
	if err := w.Write(append(columns, reasonColumn)); err != nil {
		return 0, err
	}
	for _, row := range rows {
		cells := make([]string, len(columns)+1)
		name, value, _ := strings.Cut(row[1], "=")
		if value == report.Choose {
			value = ""
		}
		cells[0], cells[slices.Index(columns, name)], cells[len(columns)] = row[0], value, row[2]
		if err := w.Write(cells); err != nil {
			return 0, err
		}
	}
	w.Flush()
	return int64(len(rows)), w.Error()
}
