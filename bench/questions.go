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

// looks are what programs and people ask over HTTP. How an answer is bounded is in docs/api.md: a part of a list ends
// after 150 ms.
var looks = []string{
	"/api/v1/items", "/api/v1/items?order=-ended", "/api/v1/items?where=state:ready&order=-id",
	"/api/v1/items?where=state:dead", "/api/v1/items?where=since:1h", "/api/v1/items?where=code:http_503",
	"/api/v1/items?where=payload.country:de", "/api/v1/items?where=output.status:404",
	"/api/v1/items?where=error~nowhere", "/api/v1/items/count?where=state:done", "/api/v1/items/count?where=key~nowhere",
	"/api/v1/items/groups?by=kind", "/api/v1/items/groups?by=payload.country",
	"/api/v1/items/{id}", "/api/v1/items/{id}/why", "/api/v1/items/{id}/attempts",
	"/api/v1/kinds", "/api/v1/stats", "/api/v1/causes", "/api/v1/agents", "/api/v1/leases", "/api/v1/leases?from=24h",
	"/api/v1/rounds", "/api/v1/locks", "/api/v1/journal",
	"/", "/desk", "/items", "/items?where=error~nowhere", "/causes", "/leases", "/work", "/rounds", "/limits",
	"/machines", "/journal", "/items/{id}", "/act?where=state:dead",
}

// questions measures how long the command line takes to answer, from its start to its end, and the pages and the API.
func (s *suite) questions(name, database string, on ours.On) measure.Scenario {
	n := s.n(1_000_000)
	var place *ours.Standing
	var pages *ours.Pages
	sc := measure.Scenario{
		Name: "ask-" + name, OneIn: 3, Title: "questions to a ledger of " + count(n) + " items, " + database,
		About: fmt.Sprintf("`ledgerd ls --limit 50` and the like, from the start of the program to its end; and answers of "+
			"the API and the pages, from the call to the end of the answer, %d times each. The ledger has %s items: most are "+
			"done, a tenth is ready, one in 2,000 dead, and 900 are leased. What no index leads to ends after two seconds, or "+
			"150 ms over HTTP, and reports how far it has looked. With -scale 10 there are ten times as many.", tries, count(n)),
		Metrics: []measure.Metric{{Name: "took", Unit: "ms"}, p99},
		Prepare: func(ctx context.Context) (remove func() error, err error) {
			if place, err = ours.NewStanding(ctx, on, func(p *ours.Place) error { return p.Mixed(ctx, n) }); err != nil {
				return nil, err
			}
			if err = errors.Join(place.Lease(ctx, 300), place.Settle(ctx)); err != nil {
				return place.Close, err
			}
			if pages, err = s.Pages(ctx, place.Place); err != nil {
				return place.Close, err
			}
			return func() error { return errors.Join(pages.Stop(), place.Close()) }, nil
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
	for _, path := range looks {
		sc.Sides = append(sc.Sides, measure.Side{Name: path, Run: func(ctx context.Context) (measure.Sample, error) {
			took, err := pages.Look(ctx, path, tries, n)
			if err != nil {
				return nil, err
			}
			return measure.Sample{"p99": measure.Percentile(took, 0.99)}, nil
		}})
		sc.Targets = append(sc.Targets, measure.Target{Text: fmt.Sprintf("`GET %s` of %s, %s, p99", path, count(n),
			database), Metric: "p99", Side: path, Max: 300})
	}
	return sc
}
