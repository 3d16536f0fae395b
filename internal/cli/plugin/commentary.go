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

// commentary tells a person what happens between ledgerd and a plugin, line by line and from
// any goroutine, and no secrets.
type commentary struct {
	mu      sync.Mutex
	out     io.Writer
	secrets *redact.Secrets
}

// NewCommentary hides the values of secrets. Very short ones are hidden only where they are given as
// secrets: they are parts of all kinds of words.
func NewCommentary(out io.Writer, secrets map[string]string) *commentary {
	return &commentary{out: out, secrets: redact.New(slices.Collect(maps.Values(secrets))...)}
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
