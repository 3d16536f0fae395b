package pluginhost

import (
	"context"
	"errors"
	"slices"
	"time"
)

// errClosed is what Replace returns of a host that has been closed meanwhile.
var errClosed = errors.New("the plugin was stopped meanwhile")

// Defined is what works a kind, and with which settings, by its Host.
type Defined interface {
	Definition() string
	Config() string
}

func (s *setup) Definition() string { return s.definition }
func (s *setup) Config() string     { return s.config }

// Replace has another program, or the same one started in another way, work from now on: it is started
// and configured, admit is asked what it is, and then new items go to it, also those that the
// process of before has not got yet. That one hands back what it has not begun, and gets grace to end
// the rest; what has not ended then is told to, and what does not end is treated as at every stop.
// Until it is gone items are worked by both; each has one result, with the definition of its process.
//
// With an error nothing has changed: errors are those of Start, and admit's.
func (h *Host) Replace(ctx context.Context, c Config, grace time.Duration, admit func(Defined) error) error {
	p, setup, err := launch(ctx, &c)
	if err != nil {
		return err
	}
	if err := admit(setup); err != nil {
		p.Kill()
		return err
	}
	s, err := h.open(p, setup)
	if err != nil {
		return err
	}
	if !h.switchTo(&c, s, grace) {
		p.Kill()
		return errClosed
	}
	return nil
}

// switchTo makes a session of another config the one that works, and stops the one of before. It does
// nothing to a host that has been closed: that waits for nothing any more.
func (h *Host) switchTo(c *Config, s *session, grace time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	old := h.session
	h.config, h.breaker, h.started = c, breaker{}, 1
	h.begin(s)
	if old != nil {
		for _, t := range old.work.Unsent() {
			if !old.setup.about.previous && h.remembers(t.Of.lease) { // the one of before did not ask for it
				h.ends.Go(func() { h.remember(t, c.LastOutput) })
			} else {
				s.work.Add(t)
			}
		}
		h.ends.Go(func() { old.proc.Stop(h.life, grace) })
	}
	return true
}

// Same reports whether a plugin is started in the same way.
func (s Spec) Same(as Spec) bool {
	return s.Place.Same(as.Place) && s.SHA256 == as.SHA256 && s.Limits == as.Limits && s.NoMTLS == as.NoMTLS &&
		s.CallTime == as.CallTime && s.Dir == as.Dir &&
		s.SocketDir == as.SocketDir && slices.Equal(s.Env, as.Env)
}
