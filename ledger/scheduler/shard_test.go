package scheduler

import (
	"fmt"
	"math"
	"testing"
)

// Keys as people have them are spread evenly over slots, and over any number of shards. The statistic is chi-square
// against equal shares. An even hash exceeds the bound once in a million cases, a poor one (the last digit, the length)
// by far. The keys are fixed, so the result does not depend on chance.
func TestSlotsAreEven(t *testing.T) {
	const n = 50_000
	for name, key := range map[string]func(i int) string{
		"rising numbers": func(i int) string { return fmt.Sprint(i) },
		"even numbers":   func(i int) string { return fmt.Sprint(2 * i) },
		"addresses":      func(i int) string { return fmt.Sprintf("user%d@example.com", i) },
		"paths":          func(i int) string { return fmt.Sprintf("/srv/inbox/%d/%02d/leads-%02d.csv", 2000+i/365, i%12, i) },
		"hosts":          func(i int) string { return fmt.Sprintf("www%d.example.org", i) },
		"hexadecimal":    func(i int) string { return fmt.Sprintf("%08x", i*7919) },
	} {
		slots := make([]int, n)
		for i := range slots {
			slots[i] = Slot(key(i))
		}
		for _, shards := range []int{2, 3, 4, 5, 7, 16, Slots} {
			count := make([]float64, shards)
			for _, s := range slots {
				count[s%shards]++
			}
			chi := 0.0
			for i, c := range count {
				// Slots are not a multiple of every number of shards: some have one slot more.
				want := float64(n) * float64((Slots-i+shards-1)/shards) / Slots
				chi += (c - want) * (c - want) / want
			}
			// Wilson and Hilferty's approximation of the quantile, 4.75 deviations out.
			free := float64(shards - 1)
			root := 1 - 2/(9*free) + 4.75*math.Sqrt(2/(9*free))
			if bound := free * root * root * root; chi > bound {
				t.Errorf("%s over %d shards: chi-square %.1f, at most %.1f", name, shards, chi, bound)
			}
		}
	}
}

func TestSlot(t *testing.T) {
	// First two bytes of SHA-256, modulo 1024: "" is e3b0…, "abc" is ba78….
	for key, want := range map[string]int{"": 0xe3b0 & 1023, "abc": 0xba78 & 1023} {
		if got := Slot(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}
