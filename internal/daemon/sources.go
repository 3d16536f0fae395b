package daemon

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"

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

// Set makes these sources the ones that are looked at, until ctx ends. One that has not changed goes
// on; it waits for the others to stop. A source that was not there before is looked at at once.
func (s *Sources) Set(ctx context.Context, all []source.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running = map[string]*running{}
	}
	wanted := map[string]source.Config{}
	for _, c := range all {
		wanted[c.Spec.Name] = c
	}
	var ended []*running
	for name, r := range s.running {
		if c, stays := wanted[name]; !stays || !same(r.as, c) {
			r.stop()
			ended = append(ended, r)
			delete(s.running, name)
		}
	}
	for _, r := range ended {
		<-r.done
	}
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

// same says whether two sources are configured alike.
func same(a, b source.Config) bool {
	return reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Template, b.Template) &&
		reflect.DeepEqual(a.Input, b.Input) && string(a.Payload) == string(b.Payload)
}

// Wait returns when none is looked at any more, after ctx has ended.
func (s *Sources) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		<-r.done
	}
}

// Status says how the sources are, by name.
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
