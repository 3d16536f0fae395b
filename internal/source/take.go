package source

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// batch is how many items are added in one transaction.
const batch = 1000

// maxNamed bounds the bad lines, and the bad files, that one look names in the log.
const maxNamed = 5

// take adds all items of an intake.Source, and calls each, if it is not nil, with each item and the ledger's answer.
func (s *Source) take(ctx context.Context, src *intake.Source, l *Look, each func(intake.Found, ledger.Added)) error {
	var found []intake.Found
	flush := func() error {
		if len(found) == 0 {
			return nil
		}
		items := make([]ledger.NewItem, len(found))
		for i := range found {
			items[i] = found[i].Item
		}
		added, err := s.config.Ledger.Add(ctx, items...)
		if err != nil {
			return err
		}
		for i, a := range added {
			l.Found++
			l.Verdicts[a.Verdict]++
			if a.State == ledger.StateCancelled {
				l.Cancelled++
			}
			if each != nil {
				each(found[i], a)
			}
		}
		found = found[:0]
		return nil
	}
	for f, err := range src.Items(ctx) {
		if err == nil {
			f.Item.Source = s.origin(f.Item.Source)
			if found = append(found, f); len(found) == batch {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if err := s.pass(err, l); err != nil {
			return errors.Join(err, flush()) // items that were found before it are still taken
		}
	}
	return flush()
}

// pass records an input that makes no item and returns nil, so that the look goes on. It returns any other error.
func (s *Source) pass(err error, l *Look) error {
	if left, ok := errors.AsType[*intake.NotTaken](err); ok {
		s.leave(*left, l)
		return nil
	}
	if bad, ok := errors.AsType[*intake.BadLine](err); ok {
		if l.Bad++; l.Bad <= maxNamed {
			s.log.Log(context.Background(), s.levelOf(*bad, l), "a line of the source makes no item", "line", bad.Line, "reason",
				redact.Text(bad.Reason))
		}
		return nil
	}
	return err
}

// leave records a file that is not taken. If a process ended while it put the file away, leave gives the file its name
// again. It does so only until the first complete look: later, another source of the same folder may put the file away.
func (s *Source) leave(left intake.NotTaken, l *Look) {
	if s.fresh && s.spec.Type == "folder" && s.spec.Finished != "keep" {
		switch ok, err := s.putter().restore(left.Input); {
		case err != nil:
			left.Reason, left.Wrong = err.Error(), true
		case ok:
			s.log.Warn("a file that was being put away when its process ended has its name again", "input", left.Input)
			return
		}
	}
	level := slog.LevelDebug
	if left.Wrong {
		if l.Left++; l.Left <= maxNamed {
			level = s.levelOf(left, l)
		}
	}
	s.log.Log(context.Background(), level, "a file of the source is left out", "input", left.Input, "reason", left.Reason)
}

// levelOf is the level at which a bad line or file is named in the log: a warning, unless the look before named it.
func (s *Source) levelOf(what any, l *Look) slog.Level {
	l.named = append(l.named, what)
	if slices.Contains(s.named, what) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// origin is an item's source: the name of the source, and the line of a list.
func (s *Source) origin(at string) string {
	if i := strings.LastIndexByte(at, ':'); i >= 0 && s.spec.Type == "list" {
		return s.spec.Name + at[i:]
	}
	return s.spec.Name
}
