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

// leakFree fails the test if goroutines outlive it. Call it before other calls of t.Cleanup.
func leakFree(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

// defaults returns the config with the SDK's default values, for a server without TLS.
func defaults(server string) Config {
	return Config{
		Server: smtp.Server{Addr: server, TLS: "none", Timeout: time.Minute, ReplyTimeout: 10 * time.Minute},
		From:   "Example News <news@example.com>",
	}
}

// open opens a config and closes it at the end of the test.
func open(t testing.TB, cfg Config) *Config {
	t.Helper()
	must.OK(t, cfg.Validate())
	must.OK(t, cfg.Open(t.Context()))
	t.Cleanup(func() { must.OK(t, cfg.Close()) })
	return &cfg
}

// post sends a mail as the SDK does for an item.
func post(ctx context.Context, cfg *Config, in In) (Out, error) {
	return work(ctx, cfg, sdk.Item[In]{Payload: in, IdempotencyKey: "mail//" + in.To + "/1"})
}

// hello returns a mail to one address.
func hello(to string) In { return In{To: to, Subject: "Hello", Text: "Good morning\n"} }

// end returns the fate and the code of a mail.
func end(err error) (failure.Fate, string) {
	if f, ok := errors.AsType[*failure.Error](err); ok {
		return f.Fate, f.Code
	}
	return sent, ""
}

func errOf(_ Out, err error) error { return err }

// sent is the fate of a mail that was sent.
const sent failure.Fate = -1
