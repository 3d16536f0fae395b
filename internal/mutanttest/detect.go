//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/chaostest"
)

// mutant is a planted bug.
type mutant struct {
	invariant string // the broken invariant: a row of docs/design.md, or a rule that docs/reliability.md explains
	name      string
	bug       string // in words
	origin    string // the project in which it was seen; "" if none
	patches   []patch
	caught    []detector // each of them must catch it
}

// patch is a chaostest.Patch, written without the names of its fields.
type patch chaostest.Patch

// overlay returns the patches for chaostest.
func (m mutant) overlay() (all []chaostest.Patch) {
	for _, p := range m.patches {
		all = append(all, chaostest.Patch(p))
	}
	return all
}

// detector is something that finds bugs.
type detector interface {
	String() string
	// find looks for bugs in ledgerd with these patches. The error means that a test could not be run.
	find(ctx context.Context, b *bench, patches []chaostest.Patch) (c catch, err error)
}

// bench is where mutants are tried.
type bench struct {
	root, dir string
	parallel  int
	sound     map[string]error // detector → why it cannot be trusted, nil if it can
}

// try runs all detectors of a mutant. A test that cannot be run catches nothing.
func (b *bench) try(ctx context.Context, m mutant) (report, error) {
	r := report{mutant: m.name, caught: true}
	for _, d := range m.caught {
		began := time.Now()
		err := b.check(ctx, d)
		var c catch
		if err == nil {
			began = time.Now()
			c, err = d.find(ctx, b, m.overlay())
		}
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil {
			c = catch{output: err.Error()}
		}
		c.detector, c.seconds = d.String(), float64(time.Since(began).Milliseconds())/1000
		r.by = append(r.by, c)
		r.caught = r.caught && c.caught
	}
	return r, nil
}

// check returns an error if a detector finds a bug in ledgerd without patches. It runs each detector once.
func (b *bench) check(ctx context.Context, d detector) error {
	name := d.String()
	err, known := b.sound[name]
	if !known {
		var c catch
		if c, err = d.find(ctx, b, nil); err == nil && (c.caught || len(c.broken) > 0 || len(c.failed) > 0) {
			err = fmt.Errorf("%s complains without any planted bug: %v", name, c)
		}
		b.sound[name] = err
	}
	return err
}

// chaos is a campaign: runs of one fault on one database.
type chaos struct {
	db     chaostest.Database
	fault  chaostest.Fault
	breaks []string // the rules that this bug breaks
}

// rounds is how often the runs of a campaign are made before a mutant counts as not caught.
const rounds = 4

func (d chaos) String() string { return fmt.Sprintf("chaos %s %s", d.db, d.fault) }

func (d chaos) find(ctx context.Context, b *bench, patches []chaostest.Patch) (c catch, err error) {
	dir, err := os.MkdirTemp(b.dir, "chaos-")
	if err != nil {
		return c, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "ledgerd")
	if err := chaostest.Build(ctx, b.root, program, chaostest.SkewableClock, patches...); err != nil {
		return c, err
	}
	c.broken = map[string]int{}
	tries, patience := rounds, 1
	if patches == nil {
		tries, patience = 1, 2 // other load of the machine must not look like a bug
	}
	for range tries {
		var plans []chaostest.Plan
		for range b.parallel {
			p, err := chaostest.NewPlan(d.db, d.fault, rand.Uint64())
			if err != nil {
				return c, err
			}
			p.Daemons, p.Patience = max(2, p.Daemons), patience
			plans = append(plans, p)
		}
		campaign := chaostest.Campaign{Program: program, Dir: filepath.Join(dir, "runs"), Parallel: b.parallel,
			Done: func(r chaostest.Result) {
				for i, v := range r.Violations {
					c.broken[v.Rule]++
					if i < 3 {
						c.output += fmt.Sprintf("%v: %v\n", r.Plan, v)
					}
				}
			}}
		if err := campaign.Work(ctx, plans); err != nil {
			return c, err
		}
		c.caught = slices.ContainsFunc(d.breaks, func(rule string) bool { return c.broken[rule] > 0 })
		if c.caught {
			break
		}
	}
	return c, nil
}

// tests are the tests of a package whose names match a pattern.
type tests struct {
	folder, pattern string
	message         string // a regular expression that must match the output of the failed test
}

func (d tests) String() string { return fmt.Sprintf("go test ./%s -run %s", d.folder, d.pattern) }

// event is a line of what `go test -json` writes.
type event struct {
	Action, Test, Output string
}

func (d tests) find(ctx context.Context, b *bench, patches []chaostest.Patch) (c catch, err error) {
	args := []string{"test", "-json", "-vet=off", "-timeout", "3m", "-run", anchored(d.pattern)}
	if patches != nil {
		dir, err := os.MkdirTemp(b.dir, "overlay-")
		if err != nil {
			return c, err
		}
		defer os.RemoveAll(dir)
		overlay, err := chaostest.Overlay(b.root, dir, patches)
		if err != nil {
			return c, err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+d.folder)...)
	cmd.Dir = b.root
	text, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return c, err
	}
	output, ran := strings.Builder{}, false
	for line := range bytes.Lines(text) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue // some lines of the go command are no JSON
		}
		if e.Action == "build-fail" {
			return c, fmt.Errorf("%v: does not compile:\n%s", cmd.Args, text)
		}
		ran = ran || e.Action == "run"
		output.WriteString(e.Output)
		if e.Action == "fail" && e.Test != "" {
			c.failed = append(c.failed, e.Test)
		}
	}
	switch {
	case !ran:
		return c, fmt.Errorf("%v ran no test:\n%s", cmd.Args, text)
	case err != nil && len(c.failed) == 0:
		return c, fmt.Errorf("%v failed, but no test did:\n%s", cmd.Args, text)
	}
	failed := slices.Clone(c.failed)
	c.failed = slices.DeleteFunc(c.failed, func(name string) bool { // its subtest is enough
		return slices.ContainsFunc(failed, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
	c.output = output.String()
	c.caught = len(c.failed) > 0 && regexp.MustCompile(d.message).MatchString(c.output)
	return c, nil
}

// anchored makes a pattern match whole names: A|B/C is ^(A|B)$/^(C)$.
func anchored(pattern string) string { return "^(" + strings.ReplaceAll(pattern, "/", ")$/^(") + ")$" }
