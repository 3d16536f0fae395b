package plugin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// commentary tells a person what happens between ledgerd and a plugin, line by line and from
// any goroutine, and no secrets.
type commentary struct {
	mu      sync.Mutex
	out     io.Writer
	began   time.Time
	secrets *redact.Secrets
}

// NewCommentary hides the values of secrets. Very short ones are hidden only where they are given as
// secrets: they are parts of all kinds of words.
func NewCommentary(out io.Writer, secrets map[string]string) *commentary {
	return &commentary{out: out, began: time.Now(), secrets: redact.New(slices.Collect(maps.Values(secrets))...)}
}

func (c *commentary) Say(format string, args ...any) {
	text := report.Safe(c.secrets.Text(fmt.Sprintf(format, args...)))
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, text)
}

// hide is a text without the secrets.
func (c *commentary) hide(text string) string { return c.secrets.Hide(text) }

// HideIn is an error without the secrets: a plugin that fails with its config may say what is in it.
func (c *commentary) HideIn(err error) error {
	f := *failure.Explain(err)
	f.Message, f.Hint = c.hide(f.Message), c.hide(f.Hint)
	return &f
}

// message prints one message: when, its direction, its call, and what is in it.
func (c *commentary) message(m pluginproc.Message) {
	arrow := "←"
	if m.Sent {
		arrow = "→"
	}
	// "/ledgerd.plugin.v1.Plugin/Process" is Plugin.Process.
	service, method, _ := strings.Cut(strings.TrimPrefix(m.Method, "/"), "/")
	name := service[strings.LastIndex(service, ".")+1:] + "." + method
	content := ""
	switch {
	case m.Err == io.EOF:
		content = "(end of the stream)"
	case m.Err != nil:
		content = "(" + grpcstatus.Convert(m.Err).Code().String() + ": " + grpcstatus.Convert(m.Err).Message() + ")"
	default:
		content = string(pluginproc.JSON(withoutSecrets(m.Body)))
	}
	at := float64(time.Since(c.began).Microseconds()) / 1000
	c.Say("%9.1f ms %s %s %s", at, arrow, name, content)
}

// withoutSecrets is a message in which the values of secrets are hidden.
func withoutSecrets(m proto.Message) proto.Message {
	configure, ok := m.(*wire.ConfigureRequest)
	if !ok || len(configure.Secrets) == 0 {
		return m
	}
	configure = proto.CloneOf(configure)
	for name := range configure.Secrets {
		configure.Secrets[name] = redact.Mask
	}
	return configure
}
