package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// callTime bounds a call of another ledgerd. Some take long, such as counting all items.
const callTime = 30 * time.Second

// serve makes a route of a call of another ledgerd.
func serve[In, Out any](call calls.Call[In, Out], do func(*Call, In) (Out, error)) Route {
	type input struct {
		Body In `body:"json"`
	}
	r := Route{Method: http.MethodPost, Path: call.Path(), Scope: call.Scope, AllKinds: call.AllKinds, own: true,
		loose: call.Loose, Summary: "Call of another ledgerd", MaxBody: maxListBody, Timeout: callTime}
	return route(r, func(c *Call, in input) (Out, error) { return do(c, in.Body) })
}

// callRoutes are the calls of other ledgerds, see package calls. They are in no description of the API.
func callRoutes() []Route {
	return slices.Concat(lookCalls(), figureCalls(), changeCalls(), []Route{
		route(Route{Method: http.MethodGet, Path: calls.Prefix + "hints", Scope: access.Work, own: true, Timeout: streamTime,
			Summary: "Hear when items may have become ready"}, followHints),
	})
}

func lookCalls() []Route {
	return []Route{
		serve(calls.Walk, walkItems),
		serve(calls.Attempts, func(c *Call, in calls.AttemptsIn) ([]ledger.Attempt, error) {
			if _, err := c.get(in.ID); err != nil {
				return nil, err
			}
			all, err := c.Read.AttemptsBefore(c.Context(), in.ID, in.Before, min(in.Limit, calls.MostAttempts))
			for i := range all {
				if !c.Grant.May(access.Payload) {
					all[i].Output, all[i].Log = nil, ""
				}
				all[i].LockID = "" // with it, a caller could end the lease
			}
			return all, err
		}),
		serve(calls.LastOutput, func(c *Call, in calls.ItemIn) ([]byte, error) {
			it, err := c.get(in.ID)
			if err != nil {
				return nil, err
			}
			if it.State != ledger.StateLeased || !c.Grant.MayClaimAs(it.Agent) { // a worker of the item may always read it
				if err := c.allowed(access.Payload); err != nil {
					return nil, err
				}
			}
			return c.Read.LastOutput(c.Context(), in.ID)
		}),
		serve(calls.Why, func(c *Call, in calls.ItemIn) (ledger.Reason, error) {
			if _, err := c.get(in.ID); err != nil {
				return ledger.Reason{}, err
			}
			return c.Read.Why(c.Context(), in.ID)
		}),
		serve(calls.Ended, func(c *Call, q ledger.EndedQuery) ([]ledger.Ended, error) {
			f, err := c.mayAsk(q.Filter)
			q.Filter, q.Limit = f, min(q.Limit, calls.MostWalked)
			if err != nil {
				return nil, err
			}
			return c.ended(c.Read.Ended(c.Context(), q))
		}),
		serve(calls.Recent, func(c *Call, in calls.RecentIn) ([]ledger.Ended, error) {
			f, err := c.mayAsk(in.Filter)
			if err != nil {
				return nil, err
			}
			return c.ended(c.Read.Recent(c.Context(), f, in.N))
		}),
		serve(calls.Journal, func(c *Call, in calls.JournalIn) (out calls.JournalOut, err error) {
			out.Entries, out.Next, err = c.Read.JournalPart(c.Context(), in.Query, in.Within)
			out.Entries, err = c.maskEntries(out.Entries, err)
			return out, err
		}),
		serve(calls.Known, func(c *Call, in calls.KnownIn) ([]bool, error) {
			if slices.ContainsFunc(in.Keys, func(k ledger.Identity) bool { return !c.Grant.MaySee(k.Kind) }) {
				return nil, c.kindRefused()
			}
			return c.Read.Known(c.Context(), in.Keys...)
		}),
		serve(calls.Lease, leaseByName),
		serve(calls.Kinds, func(c *Call, _ calls.None) ([]ledger.Kind, error) {
			all, err := c.Read.Kinds(c.Context())
			all = slices.DeleteFunc(all, func(k ledger.Kind) bool { return !c.Grant.MaySee(k.Name) })
			for i, k := range all {
				all[i].Defaults = c.hiddenOf(k.Name).from(k.Defaults)
			}
			return all, err
		}),
		serve(calls.Pauses, func(c *Call, in calls.PausesIn) (map[string]ledger.JournalEntry, error) {
			if slices.ContainsFunc(in.Kinds, func(k ledger.Kind) bool { return !c.Grant.MaySee(k.Name) }) {
				return nil, c.kindRefused()
			}
			pauses, err := c.Read.Pauses(c.Context(), in.Kinds...)
			for kind, e := range pauses {
				seen, err := c.maskEntries([]ledger.JournalEntry{e}, nil)
				if err != nil {
					return nil, err
				}
				pauses[kind] = seen[0]
			}
			return pauses, err
		}),
		serve(calls.Agents, func(c *Call, _ calls.None) ([]ledger.Agent, error) {
			return c.agents(c.Read.Agents(c.Context()))
		}),
		serve(calls.Lapsed, func(c *Call, _ calls.None) ([]ledger.Agent, error) {
			return c.agents(c.Read.Lapsed(c.Context()))
		}),
		serve(calls.Heartbeats, func(c *Call, _ calls.None) ([]ledger.Agent, error) {
			return c.agents(c.Read.Heartbeats(c.Context()))
		}),
		serve(calls.LeasedBy, func(c *Call, _ calls.None) (map[string]int64, error) {
			return c.Read.LeasedBy(c.Context())
		}),
	}
}

func figureCalls() []Route {
	return []Route{
		serve(calls.Now, func(c *Call, _ calls.None) (time.Time, error) { return c.Read.Now(c.Context()) }),
		serve(calls.Count, func(c *Call, in calls.CountIn) (n calls.Counted, err error) {
			f, err := c.mayAsk(in.Filter)
			if err != nil {
				return n, err
			}
			if in.UpTo {
				n.N, n.Whole, err = c.Read.CountUpTo(c.Context(), f, in.Most, in.Within)
				return n, err
			}
			n.N, err = c.Read.Count(c.Context(), f)
			n.Whole = true
			return n, err
		}),
		serve(calls.Stats, func(c *Call, _ calls.None) (stats.Summary, error) {
			s, err := c.Read.Stats(c.Context())
			s.Kinds = slices.DeleteFunc(s.Kinds, func(k stats.Kind) bool { return !c.Grant.MaySee(k.Kind) })
			s.Paces = slices.DeleteFunc(s.Paces, func(p stats.Pace) bool { return !c.Grant.MaySee(p.Kind) })
			return s, err
		}),
		serve(calls.Counts, func(c *Call, in calls.CountsIn) ([]stats.Counts, error) {
			all, err := c.Read.Counts(c.Context(), in.Since)
			return slices.DeleteFunc(all, func(k stats.Counts) bool { return !c.Grant.MaySee(k.Kind) }), err
		}),
		serve(calls.Standing, func(c *Call, in calls.StandingIn) (stats.Standing, error) {
			if !c.Grant.MaySee(in.Kind) {
				return stats.Standing{}, c.kindRefused()
			}
			return c.Read.StandingIn(c.Context(), in.Kind, in.Shard)
		}),
		serve(calls.Groups, func(c *Call, in calls.GroupsIn) (out calls.GroupsOut, err error) {
			f, err := c.mayAsk(in.Filter)
			if err == nil {
				out.Groups, out.Whole, err = c.groups(f, in.By, in.Within)
			}
			return out, err
		}),
		serve(calls.AttemptGroups, func(c *Call, in calls.AttemptGroupsIn) (out calls.AttemptGroupsOut, err error) {
			f, err := c.mayAsk(in.Filter)
			if err != nil {
				return out, err
			}
			all, reached, err := c.Read.AttemptGroups(c.Context(), f, in.By, in.Within)
			out.Reached = reached
			for g, counts := range all {
				out.Groups = append(out.Groups, calls.AttemptGroup{AttemptGroup: g, Counts: counts})
			}
			return out, err
		}),
		serve(calls.Holders, func(c *Call, in calls.FilterIn) ([]ledger.Holder, error) {
			f, err := c.mayAsk(in.Filter)
			if err != nil {
				return nil, err
			}
			return c.Read.Holders(c.Context(), f, func(ledger.Item) bool { return true })
		}),
	}
}

// mayAsk narrows a filter to what the caller may see, and refuses conditions on payloads that it may not see.
func (c *Call) mayAsk(f ledger.Filter) (ledger.Filter, error) {
	f, err := c.checkFilter(f)
	return c.visible(f), err
}

func (c *Call) kindRefused() error {
	return failure.New(failure.ExitDenied, "scope", "the token "+c.Grant.Name+" is not for this kind",
		"take a token that is")
}

// About how many bytes of payloads and outputs one answer has at most: a part of a walk, or the only part.
const (
	walkBytes = 4 << 20
	onlyBytes = 32 << 20
)

// walkItems returns a part of a walk. An order without an index has only one part; More is set if that part was cut.
func walkItems(c *Call, in calls.WalkIn) (calls.WalkOut, error) {
	f, err := c.mayAsk(in.Filter)
	if err != nil {
		return calls.WalkOut{}, err
	}
	in.Limit = min(max(in.Limit, 1), calls.MostWalked)
	w := &ledger.Walk{Filter: f, Order: in.Order, Desc: in.Desc, After: in.After, Top: in.Top,
		Output: in.Output && c.Grant.May(access.Payload)}
	indexed := in.Order.Indexed()
	if indexed {
		if w.Time = calls.WalkTime; in.Time > 0 {
			w.Time = min(w.Time, in.Time)
		}
	} else {
		w.Time, in.Limit = in.Time, in.Top
	}
	out, size := calls.WalkOut{Items: []ledger.Item{}}, 0
	for it, err := range c.Read.Walk(c.Context(), w) {
		if err != nil {
			return out, err
		}
		if it.Payload, err = c.payload(it.Kind, it.Payload); err != nil {
			return out, err
		}
		if !c.Grant.May(access.Payload) {
			it.Output = nil
		}
		out.Items = append(out.Items, it)
		size += len(it.Payload) + len(it.Output)
		var full bool
		if full, out.More = partEnds(indexed, in.Limit-len(out.Items), size); full {
			break
		}
	}
	out.Reached, out.More = w.Reached, out.More || w.Cut
	return out, nil
}

// partEnds reports whether a part of a walk ends, and whether there may be more after it. left is how many items the
// part may still have, size its bytes.
func partEnds(indexed bool, left, size int) (ends, more bool) {
	most := onlyBytes
	if indexed {
		most = walkBytes
	}
	full := left <= 0
	ends = full || size > most
	return ends, ends && (indexed || !full)
}

// ended removes from attempts the values that the caller may not see.
func (c *Call) ended(all []ledger.Ended, err error) ([]ledger.Ended, error) {
	for i := range all {
		if !c.Grant.May(access.Payload) {
			all[i].Output, all[i].Log = nil, ""
		}
		if err == nil {
			all[i].Payload, err = c.payload(all[i].Kind, all[i].Payload)
		}
		all[i].LockID = ""
	}
	return all, err
}

// agents removes the kinds that the caller may not see, then agents without kinds. The caller's own agents stay.
func (c *Call) agents(all []ledger.Agent, err error) ([]ledger.Agent, error) {
	if c.Grant.Kinds == nil {
		return all, err
	}
	hidden := func(kind, _ string) bool { return !c.Grant.MaySee(kind) }
	for i := range all {
		maps.DeleteFunc(all[i].Kinds, hidden)
		maps.DeleteFunc(all[i].Configs, hidden)
		maps.DeleteFunc(all[i].Plugins, func(kind string, _ health.Plugin) bool { return !c.Grant.MaySee(kind) })
		maps.DeleteFunc(all[i].Stalled, func(kind string, _ time.Time) bool { return !c.Grant.MaySee(kind) })
	}
	return slices.DeleteFunc(all, func(a ledger.Agent) bool {
		return len(a.Kinds) == 0 && !c.Grant.MayClaimAs(a.Name)
	}), err
}

// leaseByName gives the full token of a claim to those who may claim as its agent.
func leaseByName(c *Call, in calls.LeaseIn) (calls.LeaseOut, error) {
	if _, err := c.get(in.ID); err != nil {
		return calls.LeaseOut{}, err
	}
	ls, err := c.Read.Lease(c.Context(), in.ID, in.Attempt)
	if err == nil && !c.Grant.MayClaimAs(ls.Agent) {
		err = failure.New(failure.ExitDenied, "scope", "the token "+c.Grant.Name+" is not for this agent",
			"take the token with which it was claimed")
	}
	if err != nil {
		return calls.LeaseOut{}, err
	}
	ls.Item.Payload, ls.Item.Output = nil, nil
	return calls.LeaseOut{Token: ls.FullToken(), Item: ls.Item, Agent: ls.Agent, StartedAt: ls.StartedAt,
		Expires: ls.ExpiresAt, Alone: ls.Alone}, nil
}

func changeCalls() []Route {
	return []Route{
		serve(calls.Add, addFor),
		serve(calls.Act, actFor),
		serve(calls.EditKind, editKindFor),
		serve(calls.Define, func(c *Call, in calls.DefineIn) (calls.DefineOut, error) {
			if err := c.mayBeat(in.Agent, in.Kind); err != nil {
				return calls.DefineOut{}, err
			}
			err := c.Ledger.Define(c.Context(), in.Agent, in.Kind, in.Definition, in.Config)
			if conflict, ok := errors.AsType[*ledger.DefinitionError](err); ok {
				return calls.DefineOut{Conflict: conflict}, nil
			}
			return calls.DefineOut{}, err
		}),
		serve(calls.Beat, func(c *Call, in calls.BeatIn) (none calls.None, err error) {
			if err := c.mayBeat(in.Agent); err != nil {
				return none, err
			}
			return none, c.Ledger.Beat(c.Context(), in.Agent, in.TTL)
		}),
		serve(calls.Expire, func(c *Call, in calls.ExpireIn) (int, error) {
			if time.Since(c.api.started) < c.api.Grace {
				return 0, nil
			}
			return c.Ledger.Expire(c.Context(), in.Limit)
		}),
		serve(calls.AddTallies, func(c *Call, in calls.TalliesIn) (none calls.None, err error) {
			for _, m := range in.Minutes {
				if err := c.mayWorkAs(ledger.Agent{Name: m.Agent}, m.Kind); err != nil {
					return none, err
				}
			}
			return none, c.Ledger.AddTallies(c.Context(), in.Minutes...)
		}),
	}
}

// mayWorkAs checks that the caller may work on kinds under the name of an agent.
func (c *Call) mayWorkAs(a ledger.Agent, kinds ...string) error {
	if !c.Grant.MayClaimAs(a.Name) || slices.ContainsFunc(kinds, func(kind string) bool { return !c.Grant.MaySee(kind) }) {
		return failure.New(failure.ExitDenied, "scope", "the token "+c.Grant.Name+" may not work this as agent "+a.Name,
			"a token with agent asks for names with that prefix: --name, or the host's")
	}
	return nil
}

// actorFor is the name in the journal: the name that the caller gives, and its token.
func (c *Call) actorFor(name string) string {
	via := c.actor()
	if name == "" || len(name)+len(via)+len(" via ") > bounds.MaxAgent {
		return via
	}
	return name + " via " + via
}

// bulk returns the act whose entry in the journal a call continues, or begins a new one. The actor in it gets the name
// of the caller.
func (c *Call) bulk(b *ledger.BulkAct) *ledger.BulkAct {
	if b == nil {
		b = ledger.BulkActOf(c.Context())
	}
	if _, err := uuid.Parse(b.ID); err != nil {
		b = ledger.BulkActOf(c.Context())
	}
	if b.Parts == nil {
		b.Parts = map[string]int{}
	}
	if b.Actor != "" {
		b.Actor = c.actorFor(b.Actor)
	}
	return b
}

func addFor(c *Call, in calls.AddIn) (out calls.AddOut, err error) {
	if len(in.Items) > calls.MostAdded {
		return out, &ledger.InvalidError{Field: "items", Reason: "too many of them"}
	}
	if slices.ContainsFunc(in.Items, func(it ledger.NewItem) bool { return !c.Grant.MaySee(it.Kind) }) {
		return out, c.kindRefused()
	}
	ctx, do := ledger.AddingAct(c.Context(), c.actor(), ""), c.Ledger.Add
	if in.Bulk != nil {
		if out.Bulk = c.bulk(in.Bulk); out.Bulk.Actor == "" {
			out.Bulk.Actor = c.actor()
		}
		ctx = out.Bulk.With(ctx)
	}
	if in.Try {
		do = c.Ledger.Try
	}
	out.Added, err = do(ctx, in.Items...)
	if err == nil {
		c.maskVerdicts(in.Items, out.Added)
	}
	return out, err
}

// actFor carries out an act on the items that the filter names by id, as far as they match it.
func actFor(c *Call, in calls.ActIn) (out calls.ActOut, err error) {
	if len(in.Filter.IDs) == 0 || len(in.Filter.IDs) > calls.MostActed {
		return out, &ledger.InvalidError{Field: "ids", Reason: "1 … 500 of them"}
	}
	f, err := c.mayAsk(in.Filter)
	if err != nil {
		return out, err
	}
	out.Bulk = c.bulk(in.Bulk)
	ctx, actor, l := out.Bulk.With(c.Context()), c.actorFor(in.Actor), c.Ledger
	in.Options.Tell = func(ids []int64) { out.IDs = append(out.IDs, ids...) }
	how := in.Options.Option()
	switch in.Act {
	case calls.Retry:
		_, err = l.Retry(ctx, actor, f, how)
	case calls.Reopen:
		_, err = l.Reopen(ctx, actor, f, how)
	case calls.Cancel:
		_, err = l.Cancel(ctx, actor, f, how)
	case calls.Release:
		_, err = l.ForceRelease(ctx, actor, f, how)
	case calls.Place:
		if in.Options.Priority == nil {
			return out, &ledger.InvalidError{Field: "priority", Reason: "is missing"}
		}
		_, err = l.Place(ctx, actor, f, *in.Options.Priority, how)
	case calls.PutOff:
		_, err = l.PutOff(ctx, actor, f, in.Until, how)
	case calls.Forget:
		_, out.Left, err = l.Forget(ctx, actor, f, how)
	case calls.DecideAll:
		_, err = l.DecideAll(ctx, c.actorFor(in.Agent), f, in.Result, how)
	case calls.Decide:
		if _, err = c.get(in.Filter.IDs[0]); err == nil {
			err = l.Decide(ctx, in.Filter.IDs[0], c.actorFor(in.Agent), in.Result)
		}
	default:
		err = &ledger.InvalidError{Field: "act", Reason: "there is no act " + in.Act}
	}
	return out, err
}

// editKindFor changes a kind if it is still as the caller has read it; else Stale is set.
func editKindFor(c *Call, in calls.EditKindIn) (out calls.EditKindOut, err error) {
	if !c.Grant.MaySee(in.Name) {
		return out, c.kindRefused()
	}
	ctx := ledger.OneAct(c.Context(), in.Asked)
	var asRead ledger.Kind
	if err := json.Unmarshal(in.Have, &asRead); err != nil {
		return out, bad("Have", "", "is not a policy of a kind")
	}
	hidden, refused := c.hiddenOf(in.Name), ""
	out.Kind, err = c.Ledger.EditKind(ctx, c.actorFor(in.Actor), in.Name, func(k *ledger.Kind, known bool) {
		have, before := *k, *k
		have.Name, have.Defaults = in.Name, hidden.from(k.Defaults)
		out.Known = known
		if out.Stale = !bytes.Equal(ledger.JSON(have), ledger.JSON(asRead)); out.Stale {
			return
		}
		if refused = hidden.changed(k.Defaults, in.Want.Defaults); refused != "" {
			return
		}
		*k = in.Want
		k.Defaults = hidden.keep(before.Defaults, in.Want.Defaults)
		if !c.Grant.May(access.Admin) { // a caller that may not see a secret field may not make it visible
			k.Input.Secret = slices.Clone(k.Input.Secret)
			for _, name := range before.Input.Secret {
				if !slices.Contains(k.Input.Secret, name) {
					k.Input.Secret = append(k.Input.Secret, name)
				}
			}
		}
	})
	if refused != "" {
		return out, failure.New(failure.ExitDenied, "scope", "the token "+c.Grant.Name+" may not see the default of "+refused+
			", so it cannot change it", "take a token that may read the payload")
	}
	out.Kind.Defaults = hidden.from(out.Kind.Defaults)
	return out, err
}
