package plugin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// commentary prints lines about a plugin that runs, without secrets. Any goroutine may use it.
type commentary struct {
	mu      sync.Mutex
	out     io.Writer
	secrets *redact.Secrets
}

// NewCommentary makes a commentary that hides the values of secrets, except very short ones, see redact.Secrets.
func NewCommentary(out io.Writer, secrets map[string]string) *commentary {
	return &commentary{out: out, secrets: redact.New(slices.Collect(maps.Values(secrets))...)}
}

// Say prints a line.
func (c *commentary) Say(format string, args ...any) {
	text := report.Safe(c.secrets.Text(fmt.Sprintf(format, args...)))
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, text)
}

// hide returns a text without the secrets.
func (c *commentary) hide(text string) string { return c.secrets.Hide(text) }

// HideIn returns an error without the secrets: a plugin may quote its config in an error.
func (c *commentary) HideIn(err error) error {
	f := *failure.Explain(err)
	f.Message, f.Hint = c.hide(f.Message), c.hide(f.Hint)
	return &f
}
