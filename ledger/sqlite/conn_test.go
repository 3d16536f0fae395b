package sqlite

import (
	"fmt"
	"testing"
)

// More filters than fit are prepared anew.
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
		if err != nil {
			t.Fatal(err)
		}
	}
	h := <-s.readers.free
	if n := len(h.stmts); n > maxPrepared {
		t.Errorf("%d statements stay prepared", n)
	}
	s.readers.free <- h
}
