package worker

import "sync"

// quota counts the claims that Config.MaxItems allows.
type quota struct {
	most int // 0: no limit

	mu   sync.Mutex
	used int
	lent int // reserved for running claims
}

func (q *quota) limited() bool { return q.most > 0 }

// take reserves up to n claims.
func (q *quota) take(n int) int {
	if !q.limited() {
		return n
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, q.most-q.used-q.lent)
	q.lent += n
	return n
}

// took ends a reservation of n claims, of which got were used.
func (q *quota) took(n, got int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lent -= n
	q.used += got
}

// spent reports whether nothing more may be claimed.
func (q *quota) spent() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.limited() && q.used >= q.most
}
