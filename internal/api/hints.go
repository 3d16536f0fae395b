package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
)

const (
	maxHints    = 256 // callers that receive hints at the same time
	hintsAtOnce = 64  // hints that wait to be sent to one caller; more are dropped
)

// hints is a stream of lines. A line names a kind that may have new ready items. An empty line is a heartbeat.
type hints struct{}

func followHints(*Call, none) (hints, error) { return hints{}, nil }

// write sends hints until the caller closes the connection, the server ends, or the time of the stream is over.
func (hints) write(c *Call) error {
	select {
	case c.api.hints <- struct{}{}:
		defer func() { <-c.api.hints }()
	default:
		return failure.Usage("too_many", "try again later", "%d callers receive hints already", maxHints)
	}
	ctx, end := context.WithCancel(c.Context())
	defer end()
	defer context.AfterFunc(c.api.ctx, end)()
	kinds := make(chan string, hintsAtOnce)
	defer c.api.lender.Subscribe(kinds)()
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := sender{c.w, http.NewResponseController(c.w)}
	beat := time.Tick(streamBeat)
	for text := "\n"; ; {
		if out.send(text) != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-beat:
			if !c.stillGranted() {
				return nil
			}
			text = "\n"
		case kind := <-kinds:
			text = c.hintLines(kind, kinds)
		}
	}
}

// hintLines returns lines for a kind and for the kinds that wait in more, each kind once. The line "*" stands for every
// kind.
func (c *Call) hintLines(kind string, more <-chan string) (text string) {
	all := []string{kind}
	for range len(more) {
		all = append(all, <-more)
	}
	slices.Sort(all)
	for _, kind := range slices.Compact(all) {
		if kind == "" {
			text += "*\n"
		} else if c.Grant.MaySee(kind) {
			text += kind + "\n"
		}
	}
	return text
}
