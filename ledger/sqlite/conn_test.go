package sqlite

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// If there are more statements than stay prepared, the later ones are prepared again.
func TestManyStatements(t *testing.T) {
	s := testStore(t, Options{})
	for i := range 2 * maxPrepared {
		err := s.read(t.Context(), false, func(r session) error {
			return r.query(fmt.Sprintf("SELECT %d", i), func(r row) error {
				if r.int(0) != int64(i) {
					t.Errorf("%d is %d", i, r.int(0))
				}
				return nil
			})
		})
		must.OK(t, err)
	}
	h := <-s.readers.free
	if n := len(h.stmts); n > maxPrepared {
		t.Errorf("%d statements stay prepared", n)
	}
	s.readers.free <- h
}

// A reading connection whose call panicked is not used again, because its transaction is open.
func TestPanicOfReader(t *testing.T) {
	s := testStore(t, Options{})
	for range maxReaders + 1 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = s.read(t.Context(), true, func(session) error { panic("an unknown code") })
		}()
	}
	for range maxReaders + 1 {
		must.Do(t)(s.Audit(t.Context(), 0, 1))
	}
}
