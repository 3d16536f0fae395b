package sqlite

import (
	"context"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watchers have subscribed to commits of other processes. The writing connection notices them by a new value of
// data_version; its own commits do not change that value.
type watchers struct {
	mu      sync.Mutex
	next    int
	wake    map[int]func(string)
	version int64
	owed    bool      // a commit came since told
	told    time.Time // when the watchers were told last
}

func (w *watchers) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wake) > 0
}

// check reports whether another process has committed since the last call. It tells the watchers, at most once per
// watchBusy. It runs on the goroutine that owns the connection.
func (w *watchers) check(h *handle) (changed bool) {
	version := int64(0)
	err := h.query(context.Background(), "PRAGMA data_version", func(r row) error {
		version = r.int(0)
		return nil
	}, nil)
	if err != nil { // the next check finds the commit
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
	s.w.watchLog(ctx, s.closing)
	w.mu.Lock()
	delete(w.wake, id)
	w.mu.Unlock()
}

// watchLog signals the writer, until ctx or the store ends, whenever a process writes to the file's write-ahead log. If
// the system does not report writes, the writer finds commits by regular checks.
func (w *writer) watchLog(ctx context.Context, closing <-chan struct{}) {
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
		case <-failed: // events were lost; the next regular check finds the commits
		case <-written:
			select {
			case w.written <- struct{}{}:
			default:
			}
			pause(hearEvery) // several writes in this time are one event
		}
	}
}

// Announce implements ledger.Store. It does nothing, because other processes see the commit itself.
func (s *Store) Announce(...string) {}
