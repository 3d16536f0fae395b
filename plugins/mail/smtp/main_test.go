package smtp

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// leakFree fails the test if goroutines outlive it. Call it before anything that cleans up.
func leakFree(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

// plain is a server without TLS, and with the timeouts that are the defaults.
func plain(addr string) Server {
	return Server{Addr: addr, TLS: "none", Timeout: time.Minute, ReplyTimeout: 10 * time.Minute}
}

// short is a timeout for who waits in vain.
const short = 250 * time.Millisecond

// open is a sender until the test ends.
func open(t testing.TB, server Server) *Sender {
	t.Helper()
	s, err := New(server)
	must.OK(t, err)
	t.Cleanup(s.Close)
	return s
}

// A mail, as a server gets it.
const (
	from = "news@example.com"
	to   = "ann@example.com"
	mail = "From: <news@example.com>\r\nTo: <ann@example.com>\r\nSubject: Hello\r\n\r\nGood morning\r\n"
)

// post sends it.
func post(ctx context.Context, s *Sender) error {
	_, err := s.Send(ctx, from, []string{to}, []byte(mail))
	return err
}

// end is what became of a mail: its fate, and its code.
func end(err error) (failure.Fate, string) {
	if f, ok := errors.AsType[*failure.Error](err); ok {
		return f.Fate, f.Code
	}
	return sent, ""
}

// sent is the fate of a mail that is.
const sent failure.Fate = -1
