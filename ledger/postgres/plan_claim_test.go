package postgres

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// A claim skips rows that are leased, but it does not read the rows that its own process leased before.
func TestClaimsGoOn(t *testing.T) {
	w := newWorkload(t, watch(t, embedder(t, planServer(t)), "plans"), 500)
	w.fill(20*w.Batch, 1)
	claim := func() { w.Claim(ledger.Claim{}, w.Batch) }
	claim()
	w.hold()
	for range 10 {
		for _, e := range w.during(claim) {
			for _, f := range e.faults(planBounds{indexes: []string{storetest.IndexReady}, rows: w.Batch + slack,
				blocks: blocksPerRow * w.Batch}) {
				t.Errorf("%s\n%s", f, e.text)
			}
		}
	}
}

// Claims of a shard without ready items read the ready rows of other shards once. Later claims begin where the read
// ended.
func TestIdleShard(t *testing.T) {
	w := newWorkload(t, watch(t, embedder(t, planServer(t)), "plans"), 500)
	w.fill(many, 1)
	w.exec(t, `UPDATE {{S}}.ledger_backlog SET slot = slot / 4 * 4`) // shard 0 of 4
	idle := func() { w.Claim(ledger.Claim{Shard: scheduler.Shard{Index: 1, Count: 4}}, 0) }
	idle()
	w.hold()
	for _, e := range w.during(idle) {
		for _, f := range e.faults(planBounds{indexes: []string{storetest.IndexReady}, rows: slack, blocks: blocksBeside}) {
			t.Errorf("%s\n%s", f, e.text)
		}
	}
}
