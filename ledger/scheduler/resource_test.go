package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// How a claim treats the reserver, case by case.
func TestPickReserver(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	item := Candidate{ID: 9, Resources: []string{"a", "b"}, PassedAt: now.Add(-time.Minute)}
	of := func(kind string, left time.Duration, taken ...string) Reserver {
		c := item
		c.Taken = taken
		return Reserver{ItemID: 9, Kind: kind, Until: now.Add(left), Item: &c}
	}
	single := Candidate{ID: 1, Resources: []string{"a"}}
	for _, c := range []struct {
		name     string
		shard    Shard
		reserver Reserver
		limit    int
		granted  []int64
		next     *Reserver
		appoints bool
	}{
		{"no reserver", Shard{}, Reserver{Until: now}, 5, []int64{1}, nil, true},
		{"the kind had it just now", Shard{}, Reserver{Kind: "k", Until: now.Add(time.Second)}, 5, []int64{1}, nil, false},
		{"another kind had it just now", Shard{}, Reserver{Kind: "other", Until: now.Add(time.Second)}, 5, []int64{1}, nil,
			true},
		{"it gets all", Shard{}, of("k", time.Minute), 5, []int64{9}, &Reserver{Kind: "k", Until: now.Add(yieldFor)}, false},
		{"it comes first", Shard{}, of("k", time.Minute), 1, []int64{9}, &Reserver{Kind: "k", Until: now.Add(yieldFor)},
			false},
		{"it waits", Shard{}, of("k", time.Minute, "b"), 5, nil, nil, false},
		{"it waits and is asked for", Shard{}, of("k", reserveFor/2-1, "b"), 5, nil, &Reserver{ItemID: 9, Kind: "k",
			Until: now.Add(reserveFor)}, false},
		{"it is of another kind", Shard{}, of("other", time.Minute), 5, nil, nil, false},
		{"it is of another shard", Shard{1, 2}, of("k", time.Minute), 5, nil, nil, false},
		{"no claim asked for it", Shard{}, of("other", 0), 5, []int64{1}, nil, true},
		{"it is of a clock that was wrong", Shard{}, of("other", time.Hour), 5, []int64{1}, nil, true},
		{"it is not ready any more", Shard{}, Reserver{ItemID: 9, Kind: "k", Until: now.Add(time.Minute)}, 5, []int64{1}, nil,
			true},
		{"no room", Shard{}, of("k", time.Minute), 0, nil, nil, false},
	} {
		p := Claim{Kind: "k", Shard: c.shard, Limit: c.limit}.Pick(now, []Candidate{single}, c.reserver)
		if !slices.Equal(p.Granted, c.granted) || !cmp.Equal(p.Reserver, c.next) || p.Appoint.IsZero() == c.appoints {
			t.Errorf("%s: granted %v, reserver %+v, appoints %v", c.name, p.Granted, p.Reserver, p.Appoint)
		}
	}
}

// With any items to claim: what is granted shares no resource with anything, what is passed over
// waits for one that is not free, and there is nothing else that could have been granted.
func TestPickProperties(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 3)
		held := map[string]bool{}
		for _, name := range names.Draw(t, "held") {
			held[name] = true
		}
		var candidates []Candidate
		byID := map[int64]Candidate{}
		for i := range rapid.IntRange(0, 8).Draw(t, "items") {
			c := Candidate{ID: int64(i + 1), Resources: Resources(names.Draw(t, fmt.Sprint("needs of ", i+1))),
				Alone: rapid.IntRange(0, 9).Draw(t, "alone") == 0}
			for _, name := range c.Resources {
				if held[name] {
					c.Taken = append(c.Taken, name)
				}
			}
			candidates, byID[c.ID] = append(candidates, c), c
		}
		limit := rapid.IntRange(1, 9).Draw(t, "limit")
		reserver := Reserver{Kind: "k", Until: now.Add(time.Minute)}
		reserved := []string(nil)
		if len(candidates) > 0 && rapid.Bool().Draw(t, "reserver") {
			c := rapid.SampledFrom(candidates).Draw(t, "it")
			reserver.ItemID, reserver.Item, reserved = c.ID, &c, c.Resources
		}
		p := Claim{Kind: "k", Limit: limit}.Pick(now, candidates, reserver)
		user := map[string]int64{}
		for _, id := range p.Granted {
			for _, name := range byID[id].Resources {
				if held[name] || user[name] != 0 || slices.Contains(reserved, name) && id != reserver.ItemID {
					t.Fatalf("%d was granted with %s, held %v, granted to %d, reserved for %d", id, name, held, user[name],
						reserver.ItemID)
				}
				user[name] = id
			}
		}
		for _, take := range p.Taken {
			if user[take.Resource] != take.ItemID {
				t.Fatalf("%+v is not what was granted: %v", take, user)
			}
		}
		if len(p.Taken) != len(user) || len(p.Granted) > limit {
			t.Fatalf("%+v", p)
		}
		for _, park := range p.Parked {
			if name := park.Resource; !held[name] && user[name] == 0 && !slices.Contains(reserved, name) ||
				slices.Contains(p.Granted, park.ItemID) {
				t.Fatalf("%d waits for %s, which is free", park.ItemID, name)
			}
		}
		alone := slices.ContainsFunc(candidates, func(c Candidate) bool { return c.Alone })
		if len(p.Granted) < limit && !alone && len(p.Granted)+len(p.Parked) != len(candidates) {
			t.Fatalf("%d items, %d granted, %d passed over", len(candidates), len(p.Granted), len(p.Parked))
		}
		if i := slices.IndexFunc(p.Granted, func(id int64) bool { return byID[id].Alone }); i >= 0 && len(p.Granted) > 1 {
			t.Fatalf("%v were granted, %d is to be alone", p.Granted, p.Granted[i])
		}
	})
}
