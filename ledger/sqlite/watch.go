package sqlite

import (
	"context"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watchers want to know of commits that are not this store's. The connection that writes sees them as a new value of
// data_version; its own commits leave the value alone.
type watchers struct {
	mu      sync.Mutex
	next    int
	wake    map[int]func(string)
	version int64
	owed    bool      // there was a commit of which they have not been told
	told    time.Time // when they were told last
}

func (w *watchers) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wake) > 0
}

// look reports whether there was a commit since it looked last, and tells the watchers, though
// no more often than they need. It runs on the goroutine that owns the connection.
func (w *watchers) look(h *handle) (changed bool) {
	version := int64(0)
	err := h.query(context.Background(), "PRAGMA data_version", func(r row) error {
		version = r.int(0)
		return nil
	}, nil)
	if err != nil { // a hint: the next look tells
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

// hear has the writer look as soon as a process writes to the log of the file, until ctx or the store
// ends. Where the system does not report writes, looks at intervals find commits.
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
		case <-failed: // events were lost; the next look at intervals makes up for it
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
