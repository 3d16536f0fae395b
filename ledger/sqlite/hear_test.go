package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
)

// Where the system reports writes to the log, the file is checked often only while a commit is under way.
func TestLookAfter(t *testing.T) {
	w := &writer{watchBusy: watchBusy, watchIdle: watchIdle}
	const now, long = time.Duration(0), time.Hour
	for _, c := range []struct {
		hearing           int32
		busy, heard, want time.Duration
	}{{0, now, long, watchBusy}, {0, long, long, watchIdle}, {1, long, now, watchBusy}, {1, now, long, watchHeard}} {
		w.hearing.Store(c.hearing)
		if got := w.lookAfter(c.busy, c.heard); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Woken subscribes and returns the channel. The subscription ends with the test.
func Woken(t *testing.T, s *Store) (woken chan string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	woken = make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, func(kind string) {
			select {
			case woken <- kind:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return woken
}

// A commit of another process wakes at once, and not only at the next regular check.
func TestWritesAreHeard(t *testing.T) {
	s := testStore(t, Options{})
	other, err := Open(t.Context(), s.file.path, Options{})
	must.OK(t, err)
	defer other.Close()
	s.w.watchBusy, s.w.watchIdle = time.Hour, time.Hour // the writer reads them when there is a watcher
	woken := Woken(t, s)
	for n, tick := 0, time.Tick(50*time.Millisecond); ; n++ { // watching begins a moment after the call
		must.OK(t, put(other, t.Context(), fmt.Sprint(n), nil))
		select {
		case <-woken:
			return
		case <-tick:
		}
		if n > 600 {
			t.Fatal("no commit of another process was heard")
		}
	}
}
