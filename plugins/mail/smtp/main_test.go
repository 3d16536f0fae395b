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

// leakFree fails the test if goroutines outlive it. Call it before other calls of t.Cleanup.
func leakFree(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

// plain returns a server without TLS, with the default timeouts.
func plain(addr string) Server {
	return Server{Addr: addr, TLS: "none", Timeout: time.Minute, ReplyTimeout: 10 * time.Minute}
}

// short is a timeout for tests in which the timeout passes.
const short = 250 * time.Millisecond

// open returns a sender and closes it at the end of the test.
func open(t testing.TB, server Server) *Sender {
	t.Helper()
	s, err := New(server)
	must.OK(t, err)
	t.Cleanup(s.Close)
	return s
}

// These are the envelope and the content of a mail.
const (
	from = "news@example.com"
	to   = "ann@example.com"
	mail = "From: <news@example.com>\r\nTo: <ann@example.com>\r\nSubject: Hello\r\n\r\nGood morning\r\n"
)

// post sends the mail.
func post(ctx context.Context, s *Sender) error {
	_, err := s.Send(ctx, from, []string{to}, []byte(mail))
	return err
}

// end returns the fate and the code of a mail.
func end(err error) (failure.Fate, string) {
	if f, ok := errors.AsType[*failure.Error](err); ok {
		return f.Fate, f.Code
	}
	return sent, ""
}

// sent is the fate of a mail that was sent.
const sent failure.Fate = -1
