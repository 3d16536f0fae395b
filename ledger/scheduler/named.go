package scheduler

import "slices"

// NamedLane is a lane with those ready items that a claim names, in the order of claims.
type NamedLane struct {
	Lane
	Items []Candidate
}

// Named are the Lanes of a claim that names its items, in the order of their keys. They are in memory, so the claim
// asks its store once.
type Named []NamedLane

// Next implements Lanes.
func (n Named) Next(after string, p Pass) (lane Lane, passed Passed, some bool, _ error) {
	for _, l := range n {
		switch {
		case l.Key <= after:
		case !p.Over(l.Lane, passed):
			return l.Lane, passed, true, nil
		default:
			passed = passed.And(l.Lane)
		}
	}
	return Lane{}, passed, false, nil
}

// Ready implements Lanes.
func (n Named) Ready(key string, most int) ([]Candidate, error) {
	i := slices.IndexFunc(n, func(l NamedLane) bool { return l.Key == key })
	if i < 0 {
		return nil, nil
	}
	return n[i].Items[:min(most, len(n[i].Items))], nil
}
