package sqlite

import (
	"context"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watchers are told of commits of other processes. The writing connection notices them by a new value of data_version;
// its own commits do not change the value.
type watchers struct {
	mu      sync.Mutex
	next    int
	wake    map[int]func(string)
	version int64
	owed    bool      // there was a commit since told
	told    time.Time // when the watchers were told last
}

func (w *watchers) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wake) > 0
}

// look reports whether another process has committed since the last call, and tells the watchers, though no more often
// than they need. It runs on the goroutine that owns the connection.
func (w *watchers) look(h *handle) (changed bool) {
	version := int64(0)
	err := h.query(context.Background(), "PRAGMA data_version", func(r row) error {
		version = r.int(0)
		return nil
	}, nil)
	if err != nil { // the next look finds the commit
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = version != w.version
	w.version = version
	w.owed = w.owed || changed
	if w.owed && time.Since(w.told) >= watchBusy {
		w.owed, w.told = false, time.Now()
		for _, wake := range w.wake {
			wake("")
		}
	}
	return changed
}

// Watch implements ledger.Store.
func (s *Store) Watch(ctx context.Context, wake func(kind string)) {
	w := &s.w.watchers
	w.mu.Lock()
	id := w.next
	w.next++
	w.wake[id] = wake
	w.mu.Unlock()
	s.w.poke()
	s.w.hear(ctx, s.closing)
	w.mu.Lock()
	delete(w.wake, id)
	w.mu.Unlock()
}

// hear makes the writer look as soon as a process writes to the file's write-ahead log, until ctx or the store ends. If
// the system does not report writes, commits are found by looks at intervals.
func (w *writer) hear(ctx context.Context, closing <-chan struct{}) {
	var written chan fsnotify.Event
	var failed chan error
	if watcher, err := fsnotify.NewWatcher(); err == nil {
		defer watcher.Close()
		if watcher.Add(w.file.path+"-wal") == nil {
			written, failed = watcher.Events, watcher.Errors
			w.hearing.Add(1)
			defer w.hearing.Add(-1)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-closing:
			return
		case <-failed: // events were lost; the next look at an interval finds the commits
		case <-written:
			select {
			case w.written <- struct{}{}:
			default:
			}
			pause(hearEvery) // writes of this time are one event
		}
	}
}

// Announce implements ledger.Store: other processes see the commit itself.
func (s *Store) Announce(...string) {}
