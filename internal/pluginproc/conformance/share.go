package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// shared are processes that a check has left as good as new.
type shared struct {
	mu   sync.Mutex
	free []*session
}

// Share returns a target whose checks hand on the processes that they have not spoiled, so that fewer are started. end
// kills those that are left.
func (t Target) Share() (shares Target, end func()) {
	t.shared = &shared{}
	return t, func() {
		for _, s := range t.shared.free {
			s.Kill()
		}
	}
}

// state is what a process is good for.
type state int

const (
	described state = iota // nothing but Describe was called
	validated              // it has validated configs
	working                // it is configured, and its stream is open
	spoiled                // for no other check
)

// with makes a check of a session, and hands the session on or kills it.
func with(take func(Target, context.Context) (*session, error),
	check func(context.Context, *session) error) func(context.Context, Target) error {
	return func(ctx context.Context, t Target) error {
		s, err := take(t, ctx)
		if err != nil {
			return err
		}
		defer func() { s.leave(err) }()
		err = check(ctx, s)
		return err
	}
}

// take returns a process in the first of the states that there is, or nil.
func (t Target) take(states ...state) *session {
	if t.shared == nil {
		return nil
	}
	t.shared.mu.Lock()
	defer t.shared.mu.Unlock()
	for _, state := range states {
		i := slices.IndexFunc(t.shared.free, func(s *session) bool { return s.state == state && s.lives() })
		if i >= 0 {
			s := t.shared.free[i]
			t.shared.free = slices.Delete(t.shared.free, i, i+1)
			return s
		}
	}
	return nil
}

// leave hands a session on after a check with this error, or kills it.
func (s *session) leave(err error) {
	to := s.target.shared
	if to == nil || s.state == spoiled || err != nil && !errors.Is(err, ErrNotChecked) || !s.lives() {
		s.Kill()
		return
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	to.free = append(to.free, s)
}

func (s *session) lives() bool {
	select {
	case <-s.Done():
		return false
	default:
		return true
	}
}

// described returns a session that has at least described itself.
func (t Target) described(ctx context.Context) (*session, error) {
	if s := t.take(validated, described, working); s != nil {
		return s, nil
	}
	return t.begin(ctx)
}

// start returns a session without a config.
func (t Target) start(ctx context.Context) (*session, error) {
	if s := t.take(validated, described); s != nil { // what has validated nothing is for open
		return s, nil
	}
	return t.begin(ctx)
}

// open returns a session that is ready for items.
func (t Target) open(ctx context.Context) (*session, error) {
	if s := t.take(working); s != nil {
		return s, nil
	}
	s := t.take(described)
	if s == nil {
		var err error
		if s, err = t.begin(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.ready(ctx); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}
