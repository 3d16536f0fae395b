package daemon

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/source"
)

// Sources are the sources that run in this daemon.
type Sources struct {
	mu      sync.Mutex
	running map[string]*running // by name
}

// running is a source that runs in a goroutine.
type running struct {
	source *source.Source
	config source.Config
	stop   context.CancelFunc
	done   chan struct{} // closed when it has stopped
}

// stopTime bounds how long Set waits for sources that were stopped: a look at a file server that does not answer never
// ends. The lock of such a source keeps it from being looked at twice.
const stopTime = 10 * time.Second

// Set makes all the sources that run, until ctx ends. It first stops those that are not in all or have another config,
// and waits for them, for stopTime at most. Only one goroutine at a time may call it.
func (s *Sources) Set(ctx context.Context, all []source.Config) {
	wanted := map[string]source.Config{}
	for _, c := range all {
		wanted[c.Spec.Name] = c
	}
	stopping, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	for _, r := range s.drop(wanted) {
		select {
		case <-r.done:
		case <-stopping.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range wanted {
		if s.running[name] != nil {
			continue
		}
		r := &running{source: source.New(c), config: c, done: make(chan struct{})}
		var life context.Context
		life, r.stop = context.WithCancel(ctx)
		go func() {
			defer close(r.done)
			r.source.Run(life)
		}()
		s.running[name] = r
	}
}

// drop stops the sources that are not wanted, or not with their config, and returns them.
func (s *Sources) drop(wanted map[string]source.Config) (stopped []*running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running = map[string]*running{}
	}
	for name, r := range s.running {
		if c, stays := wanted[name]; !stays || !same(r.config, c) {
			r.stop()
			stopped = append(stopped, r)
			delete(s.running, name)
		}
	}
	return stopped
}

// same reports whether two sources are configured alike.
func same(a, b source.Config) bool {
	return reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Template, b.Template) &&
		reflect.DeepEqual(a.Input, b.Input) && reflect.DeepEqual(a.Fields, b.Fields) && slices.Equal(a.Given, b.Given) &&
		string(a.Payload) == string(b.Payload) && a.Rules == b.Rules
}

// Wait returns when all sources have stopped. The context of Set must have ended.
func (s *Sources) Wait() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.running))
	s.mu.Unlock()
	for _, r := range all {
		<-r.done
	}
}

// Status returns the state of the sources, by name.
func (s *Sources) Status() []source.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []source.Status{}
	for _, r := range s.running {
		all = append(all, r.source.Status())
	}
	slices.SortFunc(all, func(a, b source.Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}
