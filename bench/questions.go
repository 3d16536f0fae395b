package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

// asked are what people ask a ledger, and how long the answer may take. A question without an index ends
// when its time is over, and reports how far it has looked.
var asked = []struct {
	args string
	most float64 // ms
}{
	{"ls --limit 50", 300},
	{"ls --limit 50 --sort -id", 300},
	{"ls --limit 50 --sort -ended", 300},
	{"ls --limit 50 --state dead", 300},
	{"ls --limit 50 --where since:1m", 300},
	{"ls --limit 50 --where code:http_503", 300},
	{"ls --limit 50 --where output.status:404", 300},
	{"ls --limit 50 --where error~Service", 300},
	{"ls --limit 50 --where error~nowhere", 3000},
	{"ls --limit 50 --where key~nowhere", 3000},
	{"stats", 300},
	{"stats --by kind", 3000},
	{"errors", 300},
}

// questions measures how long the command line takes to answer, from its start to its end.
func (s *suite) questions(name, database string, on ours.On) measure.Scenario {
	n := s.n(1_000_000)
	var place *ours.Standing
	sc := measure.Scenario{
		Name: "ask-" + name, OneIn: 3, Title: "questions to a ledger of " + count(n) + " items, " + database,
		About: fmt.Sprintf("`ledgerd ls --limit 50` and the like, from the start of the program to its end, with %s "+
			"items: most are done, a tenth is ready, one in 2,000 dead. What no index leads to ends after two seconds and "+
			"prints how far it has looked. With -scale 10 there are ten times as many.",
			count(n)),
		Metrics: []measure.Metric{{Name: "took", Unit: "ms"}},
		Prepare: func(ctx context.Context) (remove func() error, err error) {
			if place, err = ours.NewStanding(ctx, on, func(p *ours.Place) error { return p.Mixed(ctx, n) }); err != nil {
				return nil, err
			}
			return place.Close, place.Settle(ctx)
		},
	}
	for _, q := range asked {
		sc.Sides = append(sc.Sides, measure.Side{Name: q.args, Run: func(ctx context.Context) (measure.Sample, error) {
			cmd := exec.CommandContext(ctx, filepath.Join(s.Programs, "ledgerd"), append(strings.Fields(q.args), "--db",
				place.Address())...)
			began := time.Now()
			out, err := cmd.CombinedOutput()
			took := time.Since(began)
			if exit := new(exec.ExitError); errors.As(err, &exit) {
				err = fmt.Errorf("%s: %w\n%s", q.args, err, out)
			}
			return measure.Sample{"took": float64(took.Microseconds()) / 1000}, err
		}})
		sc.Targets = append(sc.Targets, measure.Target{Text: fmt.Sprintf("`ledgerd %s` of %s, %s", q.args, count(n),
			database), Metric: "took", Side: q.args, Max: q.most})
	}
	return sc
}
