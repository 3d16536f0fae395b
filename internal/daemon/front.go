package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Front answers requests from the first moment of a daemon on: it lives and is not ready yet. Later it
// passes requests to the handler that it is given.
type Front struct{ handler atomic.Pointer[http.Handler] }

// Use has another handler answer from now on.
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
		WriteTimeout: 30 * time.Second,
		IdleTimeout:  time.Minute, MaxHeaderBytes: 16 << 10}
	return ServeUntil(ctx, l, s, time.Second)
}

// ServeUntil has a server answer on l until ctx ends, and for end longer what it is answering then.
func ServeUntil(ctx context.Context, l net.Listener, s *http.Server, end time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), end)
	defer cancel()
	if s.Shutdown(closing) != nil {
		_ = s.Close() // open requests are cut off
	}
	<-ended
	return nil
}
