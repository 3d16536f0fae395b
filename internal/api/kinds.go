package api

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

func kindRoutes() []Route {
	return []Route{
		route(Route{Name: "listKinds", Method: http.MethodGet, Path: "/kinds", Scope: access.Read,
			Summary: "List kinds and how they are treated"}, listKinds),
		route(Route{Name: "getKind", Method: http.MethodGet, Path: "/kinds/{kind}",
			Scope: access.Read, Codes: []string{"not_found"},
			Summary: "Get how a kind is treated"}, getKind),
		route(Route{Name: "changeKind", Method: http.MethodPatch, Path: "/kinds/{kind}", Scope: access.Operate,
			Codes:   []string{"not_found", "invalid", "changed", "no_condition"},
			Summary: "Change how a kind is treated, unless it was changed since it was read"}, changeKind),
		route(Route{Name: "pauseKind", Method: http.MethodPut, Path: "/kinds/{kind}/paused", Scope: access.Operate,
			Codes: []string{"not_found"}, Summary: "Pause a kind, or end its pause"}, pauseKind),
	}
}

func listKinds(c *Call, _ none) (answer.List[answer.Kind], error) {
	kinds, err := c.Read.Kinds(c.Context())
	var rows []answer.Kind
	for _, k := range kinds {
		if c.Grant.MaySee(k.Name) {
			rows = append(rows, answer.NewKind(k))
		}
	}
	return answer.NewList(rows, ""), err
}

type kindIn struct {
	Kind string `path:"kind" doc:"name of the kind"`
}

// kind reads the policy of a kind. A kind that the caller may not see is not found.
func (c *Call) kind(name string) (ledger.Kind, error) {
	k, err := c.Read.Kind(c.Context(), name)
	if errors.Is(err, ledger.ErrNotFound) || !c.Grant.MaySee(name) {
		return k, missing("there is no kind %q", name)
	}
	return k, err
}

func getKind(c *Call, in kindIn) (answer.Kind, error) {
	k, err := c.kind(in.Kind)
	return answer.NewKind(k), err
}

type changeKindIn struct {
	Kind    string            `path:"kind" doc:"name of the kind"`
	IfMatch string            `header:"If-Match" doc:"ETag of the kind as it was read, or *"`
	Change  answer.KindChange `body:"json" doc:"what is to be changed; the rest stays"`
}

func changeKind(c *Call, in changeKindIn) (answer.Kind, error) {
	if in.IfMatch == "" {
		return answer.Kind{}, failure.Usage("no_condition", "send the ETag of GET /kinds/"+in.Kind+", or *",
			"the header If-Match is missing")
	}
	return c.editKind(in.Kind, "", func(k *ledger.Kind) error {
		text, err := report.Marshal(answer.NewKind(*k))
		if err != nil {
			return err
		}
		if !matches(in.IfMatch, etag(text)) {
			return failure.Usage("changed", "read it again", "kind %s was changed since it was read", in.Kind)
		}
		return in.apply(k)
	})
}

type pauseIn struct {
	Kind  string       `path:"kind" doc:"name of the kind"`
	Pause answer.Pause `body:"json" doc:"whether it is paused, and why"`
}

func pauseKind(c *Call, in pauseIn) (answer.Kind, error) {
	return c.editKind(in.Kind, in.Pause.Reason, func(k *ledger.Kind) error {
		k.Paused = in.Pause.Paused
		return nil
	})
}

// editKind changes a kind that exists. It changes nothing if edit fails.
func (c *Call) editKind(name, reason string, edit func(k *ledger.Kind) error) (answer.Kind, error) {
	if _, err := c.kind(name); err != nil {
		return answer.Kind{}, err
	}
	var failed error
	stored, err := c.Ledger.EditKind(ledger.OneAct(c.Context(), reason), c.actor(), name, func(k *ledger.Kind, _ bool) {
		changed := *k
		if failed = edit(&changed); failed == nil {
			*k = changed
		}
	})
	if failed != nil {
		return answer.Kind{}, failed
	}
	return answer.NewKind(stored), err
}

// apply changes the fields that the request has.
func (in changeKindIn) apply(k *ledger.Kind) error {
	g := in.Change
	if g.OnLost != nil {
		onLost := ledger.OnLost(*g.OnLost)
		if !slices.Contains([]ledger.OnLost{ledger.OnLostRepeat, ledger.OnLostDoubt}, onLost) {
			return &ledger.InvalidError{Field: "on_lost", Reason: "must be repeat or doubt"}
		}
		k.OnLost = onLost
	}
	give(&k.MaxFailures, g.MaxFailures)
	give(&k.MaxCrashes, g.MaxCrashes)
	give(&k.MaxLost, g.MaxLost)
	give(&k.Limits.MaxRunning, g.MaxRunning)
	give(&k.Limits.MaxRunningPerShardKey, g.PerKey)
	give(&k.Limits.Burst, g.Burst)
	for _, d := range []struct {
		name string
		from *float64
		to   *time.Duration
	}{{"backoff_base_s", g.BackoffBase, &k.Backoff.Base}, {"backoff_cap_s", g.BackoffCap, &k.Backoff.Cap},
		{"timeout_s", g.Timeout, &k.Timeout}, {"keep_s", g.Keep, &k.Keep}} {
		if d.from == nil {
			continue
		}
		const most = float64(10 * 365 * 24 * 60 * 60)
		if *d.from < 0 || *d.from > most {
			return &ledger.InvalidError{Field: d.name, Reason: "must be 0 … 315,360,000 seconds"}
		}
		*d.to = time.Duration(*d.from * float64(time.Second)).Truncate(time.Microsecond)
	}
	if g.KeepForever {
		k.Keep = ledger.KeepForever
	}
	for _, r := range []struct {
		name string
		from *string
		to   *scheduler.Rate
	}{{"rate", g.Rate, &k.Limits.Rate}, {"rate_per_shard_key", g.RatePerKey, &k.Limits.RatePerShardKey}} {
		if r.from == nil {
			continue
		}
		rate, err := scheduler.ParseRate(*r.from)
		if err != nil {
			return &ledger.InvalidError{Field: r.name, Reason: err.Error()}
		}
		*r.to = rate
	}
	return nil
}

// give sets a value if the request has one.
func give[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
