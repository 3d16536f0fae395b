package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// The log is heard: a commit of another process wakes at once, not with the next look.
func TestWritesAreHeard(t *testing.T) {
	s := testStore(t, Options{})
	other, err := Open(t.Context(), s.file.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s.w.watchBusy, s.w.watchIdle = time.Hour, time.Hour // the writer looks at them when there is a watcher
	woken := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
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
	defer func() { cancel(); <-ended }()
	for n, tick := 0, time.Tick(50*time.Millisecond); ; n++ { // hearing begins a moment after the call
		if err := put(other, t.Context(), fmt.Sprint(n), nil); err != nil {
			t.Fatal(err)
		}
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
