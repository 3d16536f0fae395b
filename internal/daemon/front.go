package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Front answers requests from the start of a daemon on. Before Use it answers that the daemon lives and is not ready;
// after Use it passes requests on.
type Front struct{ handler atomic.Pointer[http.Handler] }

// Use makes h answer from now on.
func (f *Front) Use(h http.Handler) { f.handler.Store(&h) }

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := f.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	switch r.URL.Path {
	case "/livez":
		fmt.Fprintln(w, "ok")
	case "/readyz":
		answerReady(w, readiness{Problem: "the daemon is starting"})
	default:
		http.Error(w, "the daemon is starting", http.StatusServiceUnavailable)
	}
}

// Serve answers on l until ctx ends.
func (f *Front) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: f, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	return ServeUntil(ctx, l, s, time.Second)
}

// ServeUntil serves on l until ctx ends. Requests that are open then have grace to end.
func ServeUntil(ctx context.Context, l net.Listener, s *http.Server, grace time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if s.Shutdown(closing) != nil {
		_ = s.Close() // open requests are cut off
	}
	<-ended
	return nil
}
