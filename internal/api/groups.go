package api

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

type groupsIn struct {
	By    string `query:"by" default:"kind" doc:"kind, scope, shard_key, or a field of the payload: customer.country"`
	Where string `query:"where" doc:"filter, in the language of the command line"`
	Limit int64  `query:"limit" default:"100" range:"1 … 1000" doc:"at most this many groups; those with the most open items come first"`
}

func groupItems(c *Call, in groupsIn) (answer.Groups, error) {
	out := answer.Groups{Items: []answer.Group{}}
	f, err := c.filter(in.Where, time.Now())
	if err != nil {
		return out, err
	}
	groups, whole, err := c.groups(f, in.By, countTime)
	slices.SortStableFunc(groups, func(a, b stats.Group) int { return cmp.Compare(b.Left, a.Left) })
	out.Groups, out.Whole = int64(len(groups)), whole
	for _, g := range groups[:min(len(groups), int(in.Limit))] {
		out.Items = append(out.Items, answer.NewGroup(g))
	}
	return out, err
}

// groups counts items by a column, or by a field of the payload as the caller may see it.
func (c *Call) groups(f ledger.Filter, by string, within time.Duration) ([]stats.Group, bool, error) {
	if slices.Contains([]string{stats.ByKind, stats.ByScope, stats.ByShardKey}, by) {
		return c.Read.Groups(c.Context(), f, by, within)
	}
	path := strings.Split(strings.TrimPrefix(by, stats.ByPayload+"."), ".")
	if _, err := c.mayRead(stats.ByPayload, path); err != nil {
		return nil, false, err
	}
	groups, whole, err := c.Read.Groups(c.Context(), f, by, within)
	if err != nil {
		return nil, false, err
	}
	var all []stats.Group
	at := map[string]int{}
	for _, g := range groups { // values may be objects that differ in hidden fields only
		if g.Value, err = c.payload("", g.Value); err != nil {
			return nil, false, err
		}
		i, ok := at[string(g.Value)]
		if !ok {
			at[string(g.Value)] = len(all)
			all = append(all, g)
			continue
		}
		all[i].Add(g)
	}
	return all, whole, nil
}
