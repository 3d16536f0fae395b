package mail

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, Plugin()) }

// leakFree fails the test if goroutines outlive it. Call it before anything that cleans up.
func leakFree(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

// defaults is the config as the SDK fills it in, for a server without TLS.
func defaults(server string) Config {
	return Config{
		Server: smtp.Server{Addr: server, TLS: "none", Timeout: time.Minute, ReplyTimeout: 10 * time.Minute},
		From:   "Example News <news@example.com>",
	}
}

// open makes a config ready, until the test ends.
func open(t testing.TB, cfg Config) *Config {
	t.Helper()
	must.OK(t, cfg.Validate())
	must.OK(t, cfg.Open(t.Context()))
	t.Cleanup(func() { must.OK(t, cfg.Close()) })
	return &cfg
}

// post sends a mail as an item would.
func post(ctx context.Context, cfg *Config, in In) (Out, error) {
	return work(ctx, cfg, sdk.Item[In]{Payload: in, IdempotencyKey: "mail//" + in.To + "/1"})
}

// hello is a mail to one address.
func hello(to string) In { return In{To: to, Subject: "Hello", Text: "Good morning\n"} }

// end is what became of a mail: its fate, and its code.
func end(err error) (failure.Fate, string) {
	if f, ok := errors.AsType[*failure.Error](err); ok {
		return f.Fate, f.Code
	}
	return sent, ""
}

func errOf(_ Out, err error) error { return err }

// sent is the fate of a mail that is.
const sent failure.Fate = -1
