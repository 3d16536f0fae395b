package source

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// maxWatched bounds how many folders are watched. Changes in the others are found by the schedule.
const maxWatched = 10_000

// hints are notifications of the operating system that something in a folder has changed.
type hints struct {
	c chan struct{} // has an entry after a change

	root      string
	recursive bool
	log       *slog.Logger
	watcher   *fsnotify.Watcher // nil: there are no hints
	done      chan struct{}     // closed when listen has ended

	mu       sync.Mutex
	watched  int  // number of watched folders, with some that are gone
	complete bool // all folders are watched
}

// watch begins to listen for changes. If that is not possible, there are no hints.
func watch(root string, recursive bool, log *slog.Logger) *hints {
	h := &hints{c: make(chan struct{}, 1), root: root, recursive: recursive, log: log, complete: true,
		done: make(chan struct{})}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		h.partly(err)
		close(h.done)
		return h
	}
	h.watcher = watcher
	go h.listen()
	return h
}

// begin watches the folder if it is not watched yet: it may have been made in the meantime. If the path is a link, its
// target is watched.
func (h *hints) begin() {
	if root := resolved(h.root); h.watcher != nil && !slices.Contains(h.watcher.WatchList(), root) {
		h.add(root)
	}
}

// partly logs, once, that some changes give no hint.
func (h *hints) partly(err error) {
	if h.complete {
		h.complete = false
		h.log.Warn("changes are not noticed at once everywhere: there the schedule counts", "error", err)
	}
}

// add watches a folder, and with recursive the folders in it.
func (h *hints) add(root string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil: // the look will report it
			return nil
		case !d.IsDir():
			return nil
		case path != root && (!h.recursive || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		}
		if h.watched >= maxWatched { // count again, without folders that are gone
			if h.watched = len(h.watcher.WatchList()); h.watched >= maxWatched {
				h.partly(errors.New("too many folders"))
				return fs.SkipAll
			}
		}
		if err := h.watcher.Add(path); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				h.partly(err)
			}
			return nil
		}
		h.watched++
		return nil
	})
}

// listen turns notifications into hints until the watcher is closed.
func (h *hints) listen() {
	defer close(h.done)
	for {
		select {
		case e, ok := <-h.watcher.Events:
			if !ok {
				return
			}
			if e.Op == fsnotify.Chmod || strings.HasPrefix(filepath.Base(e.Name), asidePrefix) {
				continue
			}
			if e.Has(fsnotify.Create) && h.recursive {
				h.add(e.Name)
			}
			h.hint()
		case _, ok := <-h.watcher.Errors:
			if !ok {
				return
			}
			h.add(resolved(h.root)) // lost notifications may have been of new folders
			h.hint()
		}
	}
}

func (h *hints) hint() {
	select {
	case h.c <- struct{}{}:
	default:
	}
}

func (h *hints) close() {
	if h.watcher != nil {
		_ = h.watcher.Close() // nothing is lost with it
	}
	<-h.done
}
