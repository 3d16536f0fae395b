package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/ledger"
)

// folder adds the files of the folder, and puts finished files away.
func (s *Source) folder(ctx context.Context, src *intake.Source, l *Look) error {
	info, err := os.Stat(s.spec.Path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", s.spec.Path)
	}
	if to := s.spec.MoveTo; to != "" && s.spec.FindsAgain(resolved(s.spec.Path), resolved(to)) {
		return fmt.Errorf("move_to: %s lies in %s, where moved files would be found again", to, s.spec.Path)
	}
	if s.spec.Local {
		if err := s.alone(ctx); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		exclude  bool
		patterns []string
	}{{false, s.spec.Include}, {true, s.spec.Exclude}} {
		for _, pattern := range p.patterns {
			rule, err := intake.ParseRule(p.exclude, pattern)
			if err != nil {
				return err
			}
			src.Rules = append(src.Rules, rule)
		}
	}
	src.Args, src.Flat, src.FollowLinks = []string{s.spec.Path}, !s.spec.Recursive, s.spec.FollowLinks
	s.settling.begin()
	src.Settled = s.settling.settled
	var each func(intake.Found, ledger.Added)
	var stays error // why the first finished file that could not be put away stays
	if s.spec.Finished != "keep" {
		each = func(f intake.Found, a ledger.Added) {
			if err := s.finish(ctx, f, a, l); err != nil && stays == nil {
				stays = fmt.Errorf("a finished file cannot be put away: %w", err)
			}
		}
	}
	err = s.take(ctx, src, l, each)
	l.Young = s.settling.young
	return errors.Join(err, stays)
}

// resolved returns a path without links; the part that does not exist stays as it is.
func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return cmp.Or(to, path)
	}
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// finish puts a file away if its item is done in the version that was just seen.
func (s *Source) finish(ctx context.Context, f intake.Found, a ledger.Added, l *Look) error {
	if a.State != ledger.StateDone || a.Verdict != ledger.VerdictKnown && a.Verdict != ledger.VerdictDiffers {
		return nil
	}
	p := s.putter()
	rel, err := filepath.Rel(s.spec.Path, f.Input)
	if err != nil {
		return err
	}
	done, err := p.putAway(ctx, rel, f.Item.Fingerprint)
	if done {
		l.Finished++
		s.log.Debug("put away", "input", f.Input, "to", p.to)
	}
	return err
}

// putter returns the putter that the config asks for.
func (s *Source) putter() putter {
	if s.spec.Finished == "move" {
		return putter{s.spec.Path, s.spec.MoveTo}
	}
	return putter{from: s.spec.Path}
}

// alone returns an error if another machine works the kind, because that machine does not see the folder.
func (s *Source) alone(ctx context.Context) error {
	agents, err := s.config.Ledger.Agents(ctx)
	if err != nil {
		return err
	}
	for _, a := range agents {
		if _, works := a.Kinds[s.config.Template.Kind]; works && a.Host != s.config.Host {
			return fmt.Errorf("kind %q is worked on %s as well, which does not see %s; give the folder a kind of its own",
				s.config.Template.Kind, a.Host, s.spec.Path)
		}
	}
	return nil
}

// settling remembers from look to look the files that may still be being written.
type settling struct {
	settle time.Duration // how long a file must stay the same
	now    func() time.Time
	seen   map[string]sighting // by the look before
	next   map[string]sighting // by the present look
	young  int                 // files of the present look that are not taken yet
}

// sighting is a version of a file, and when it was first seen.
type sighting struct {
	version string
	since   time.Time
}

func newSettling(settle time.Duration) *settling {
	return &settling{settle: settle, now: time.Now, next: map[string]sighting{}}
}

func (s *settling) begin() {
	s.seen, s.next, s.young = s.next, map[string]sighting{}, 0
}

// clockSlack is how far the clock of a file server may be behind. A file that seems to be younger than that may have
// been changed just now, so two looks have to see it unchanged.
const clockSlack = time.Minute

// settled implements intake.Source.Settled.
func (s *settling) settled(path string, info fs.FileInfo) bool {
	now := s.now()
	if s.settle == 0 {
		return true
	}
	before, known := s.seen[path]
	old := now.Sub(info.ModTime()) >= max(s.settle, clockSlack)
	if !known && old {
		return true
	}
	version := intake.Version(info)
	if !known || before.version != version {
		before = sighting{version, now}
	}
	unchanged := now.Sub(before.since) >= s.settle
	if !unchanged || !old { // else it may be forgotten
		s.next[path] = before
	}
	if !unchanged {
		s.young++
	}
	return unchanged
}
