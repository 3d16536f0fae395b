package lending

import (
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
)

// maxGranted is the number of leases in one generation of granted. Two generations take some 10 MB.
const maxGranted = 5000

// granted keeps the leases that this server has granted lately, so that a renewal or an end need not read them from the
// database. Each write of the ledger checks the lock_id, so a lease that was lost meanwhile ends nothing. The leases of
// other servers, and those that are kept no more, are read.
type granted struct {
	mu          sync.Mutex
	now, before map[string]ledger.Lease // by full token, without payloads and history; before is dropped as a whole
}

// add keeps a lease.
func (g *granted) add(token string, ls *ledger.Lease) {
	kept := *ls
	kept.Payload, kept.Error, kept.Cause, kept.Code, kept.Worker = nil, "", "", "", ""
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == nil || len(g.now) >= maxGranted {
		g.now, g.before = map[string]ledger.Lease{}, g.now
	}
	g.now[token] = kept
}

// get returns a lease of its own for each call; nil if there is none.
func (g *granted) get(token string) *ledger.Lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, kept := range []map[string]ledger.Lease{g.now, g.before} {
		if ls, is := kept[token]; is {
			return &ls
		}
	}
	return nil
}

// drop forgets a lease that has ended.
func (g *granted) drop(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.now, token)
	delete(g.before, token)
}
