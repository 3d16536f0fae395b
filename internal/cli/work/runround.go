package work

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
)

// roundNews is how the current round of the kind and scope differs from the round before.
type roundNews struct {
	NewlyFailed int64 `json:"newly_failed"` // items that failed for good, and did not fail in the round before
	Recovered   int64 `json:"recovered"`    // items that are done, and failed in the round before
	Counted     bool  `json:"counted"`      // false: newsTime was too short, and there may be more
}

// newsTime bounds each of the two counts.
const newsTime = 2 * time.Second

// roundNews returns the news of the round; nil unless the inputs recur.
func (r *inputRun) roundNews(ctx context.Context, interrupted bool) (*roundNews, error) {
	template := r.Source.Template
	if template.Every == "" || interrupted {
		return nil, nil
	}
	n := &roundNews{Counted: true}
	for _, c := range []struct {
		n    *int64
		news ledger.RoundState
	}{{&n.NewlyFailed, ledger.RoundNewlyFailed}, {&n.Recovered, ledger.RoundRecovered}} {
		f := ledger.Filter{Kinds: []string{r.Kind.Name}, Scopes: []string{template.Scope},
			Rounds: []ledger.RoundState{c.news}}
		count, whole, err := r.Ledger.CountUpTo(ctx, f, 0, newsTime)
		if err != nil {
			return nil, err
		}
		*c.n, n.Counted = count, n.Counted && whole
	}
	return n, nil
}

// tellRound prints the news of the round.
func (r *inputRun) tellRound(p *report.Printer, s *Summary) {
	n := s.Round
	if n == nil || n.NewlyFailed+n.Recovered == 0 {
		return
	}
	mark := ""
	if !n.Counted {
		mark = "at least "
	}
	line := fmt.Sprintf("%s%s newly failed, %s recovered since the round before", mark, report.Count(n.NewlyFailed),
		report.Count(n.Recovered))
	if n.NewlyFailed > 0 {
		line += ": ledgerd ls --where " + shell.Quote(fmt.Sprintf("kind:%s round:%s", s.Kind, ledger.RoundNewlyFailed))
	}
	r.App.Advise(p.Out, "%s\n", line)
}
