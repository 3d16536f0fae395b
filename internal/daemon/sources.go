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

// Sources are the sources that are looked at.
type Sources struct {
	mu      sync.Mutex
	running map[string]*running
}

type running struct {
	source *source.Source
	as     source.Config
	stop   context.CancelFunc
	done   chan struct{}
}

// stopTime bounds how long a change of sources waits for those that are gone: a look at a dead file
// server never ends. Its lock keeps the source from being looked at twice.
const stopTime = 10 * time.Second

// Set makes these sources the ones that are looked at, until ctx ends. One that has not changed goes
// on; for the others it waits until they have stopped, for ten seconds at most. A source that was not
// there before is looked at at once. Only one goroutine at a time may call it.
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
		r := &running{source: source.New(c), as: c, done: make(chan struct{})}
		var life context.Context
		life, r.stop = context.WithCancel(ctx)
		go func() {
			defer close(r.done)
			r.source.Run(life)
		}()
		s.running[name] = r
	}
}

// drop stops the sources that are not wanted as they are.
func (s *Sources) drop(wanted map[string]source.Config) (ended []*running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running = map[string]*running{}
	}
	for name, r := range s.running {
		if c, stays := wanted[name]; !stays || !same(r.as, c) {
			r.stop()
			ended = append(ended, r)
			delete(s.running, name)
		}
	}
	return ended
}

// same reports whether two sources are configured alike.
func same(a, b source.Config) bool {
	return reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Template, b.Template) &&
		reflect.DeepEqual(a.Input, b.Input) && reflect.DeepEqual(a.Fields, b.Fields) && slices.Equal(a.Given, b.Given) &&
		string(a.Payload) == string(b.Payload) && a.Rules == b.Rules
}

// Wait returns when none is looked at any more, after ctx has ended.
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
