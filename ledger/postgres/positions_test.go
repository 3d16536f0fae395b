package postgres

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func at(n int) place { return place{at: time.Unix(int64(n), 0)} }

// A row that this process made ready is found by the next walk, whatever other walks run at the same time.
func TestFrontierFindsWhatThisProcessMadeReady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f frontier
		now := time.Unix(1000, 0)
		rows := map[int]bool{} // places of rows that are there
		type claim struct {
			w        *walk
			snapshot map[int]bool
		}
		var open []claim
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := rapid.IntRange(1, 50).Draw(t, "place")
				rows[n] = true
				f.lower(at(n))
			},
			"begin": func(t *rapid.T) {
				seen := map[int]bool{}
				for n := range rows {
					seen[n] = true
				}
				open = append(open, claim{f.begin(now), seen})
			},
			"end": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("no walk is open")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "walk")
				c := open[i]
				open = append(open[:i], open[i+1:]...)
				// It takes the first rows of its snapshot, from its position on, up to a limit.
				limit, last := rapid.IntRange(1, 5).Draw(t, "limit"), 0
				taken := 0
				for n := 1; n <= 50 && taken < limit; n++ {
					if c.snapshot[n] && at(n).compare(c.w.from) >= 0 {
						delete(rows, n) // or another walk has had it
						last = n
						taken++
					}
				}
				switch {
				case taken == limit:
					c.w.reached(at(last), false, now)
				default:
					c.w.reached(at(50), true, now)
				}
			},
			"": func(t *rapid.T) {
				if len(open) > 0 {
					return // a walk that is open may have taken the row, or will take the position back
				}
				for n := range rows {
					if at(n).compare(f.at) < 0 && now.Before(f.whole) {
						t.Fatalf("the row at %d is behind the position %v", n, f.at.at.Unix())
					}
				}
			},
		})
	})
}

func TestFrontierWalksTheWholeNowAndThen(t *testing.T) {
	var f frontier
	now := time.Unix(1000, 0)
	w := f.begin(now)
	if !w.whole || w.from != (place{}) {
		t.Fatalf("the first walk begins at %v", w.from)
	}
	w.reached(at(10), true, now.Add(100*time.Millisecond)) // 20 times what it cost is 2 s
	if w = f.begin(now.Add(2 * time.Second)); w.whole || w.from != at(10) {
		t.Fatalf("too early over the whole: %+v", w)
	}
	w.reached(at(20), false, now)
	if w = f.begin(now.Add(2100 * time.Millisecond)); !w.whole || w.from != (place{}) {
		t.Fatalf("not over the whole: %+v", w)
	}
	w.reached(at(3), false, now.Add(2101*time.Millisecond)) // full at 3: what lies between is not known
	if f.at != at(3) {
		t.Fatalf("the position is %v, want that of the last row of the walk over the whole", f.at)
	}
	if w = f.begin(now.Add(3100 * time.Millisecond)); w.whole {
		t.Fatal("over the whole again within a second")
	}
}

// However long a walk over the whole index took, the next one comes within wholeMost.
func TestFrontierHidesNothingForLong(t *testing.T) {
	var f frontier
	now := time.Unix(1000, 0)
	for _, cost := range []time.Duration{0, 300 * time.Millisecond, time.Second, 10 * time.Minute} {
		w := f.begin(now)
		if !w.whole {
			t.Fatalf("at %v: not over the whole", now)
		}
		now = now.Add(cost)
		w.reached(at(10), true, now)
		f.lower(at(5)) // this process does not know of a row at 3
		if w := f.begin(now.Add(wholeMost - time.Microsecond)); cost >= time.Second && w.whole {
			t.Errorf("after a walk of %v the next one over the whole is too early", cost)
		}
		now = now.Add(wholeMost)
		w = f.begin(now)
		if !w.whole || w.from != (place{}) {
			t.Errorf("a walk of %v hides what lies behind it for longer than %v", cost, wholeMost)
		}
		w.leave()
		f.whole = time.Time{}
	}
}

func TestClaimedMovesEachLevel(t *testing.T) {
	var p positions
	part := backlogPart{kind: "k"}
	now := time.Unix(1000, 0)
	end := func(f found) {
		f.now = now
		p.claimed(p.claims(part), f)
	}
	five, nine := at(5), at(9)
	end(found{last: [levels]*place{2: &five}}) // full within priority 0
	margined := place{at: now.Add(-margin)}
	for i, want := range []place{margined, margined, five, {}, {}} {
		if got := p.ready[part][i].at; got != want {
			t.Errorf("level %d is at %v, want %v", i, got.at, want.at)
		}
	}
	end(found{last: [levels]*place{3: &nine}, all: true}) // and nothing behind it
	for i := range levels {
		if got := p.ready[part][i].at; got != margined {
			t.Errorf("level %d is at %v, want %v", i, got.at, margined.at)
		}
	}
	p.lower(marks{mark{"k", -2}: time.Unix(1, 0), mark{"other", 2}: {}}, nil, nil)
	if p.ready[part][0].at != at(1) || p.ready[part][4].at != margined {
		t.Errorf("lowered to %v and %v", p.ready[part][0].at, p.ready[part][4].at)
	}
	p.lower(nil, nil, []string{"k"})
	if p.ready[part][4].at != (place{}) {
		t.Errorf("a kind that is no longer paused stays at %v", p.ready[part][4].at)
	}
}
