package sdk

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// logHandler is the handler of an item's log. Most items log nothing, so its buffer is made with the first line.
type logHandler struct{ t *task }

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.lines().Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler { return h.lines().WithAttrs(attrs) }
func (h logHandler) WithGroup(name string) slog.Handler       { return h.lines().WithGroup(name) }

func (h logHandler) lines() slog.Handler {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	return h.t.tail().lines
}

// tail returns the task's log and makes it at the first call. The caller holds mu.
func (t *task) tail() *logTail {
	if t.log == nil {
		t.log = new(logTail)
		t.log.lines = slog.NewTextHandler(t.log, &slog.HandlerOptions{Level: slog.LevelDebug})
	}
	return t.log
}

// logTail keeps the last wire.MaxLog bytes written to it.
type logTail struct {
	lines slog.Handler // writes here

	mu  sync.Mutex
	buf []byte
	cut bool
}

// Write never fails.
func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	if n > wire.MaxLog {
		p, l.cut = p[n-wire.MaxLog:], true
	}
	if len(l.buf)+len(p) > 2*wire.MaxLog {
		// Moved only when twice as much is there, so that each byte moves at most once.
		l.buf, l.cut = append(l.buf[:0], l.buf[len(l.buf)-wire.MaxLog:]...), true
	}
	l.buf = append(l.buf, p...)
	return n, nil
}

// String returns the log. If its beginning was dropped, it starts at the first whole line, if there is one.
func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, cut := cleanText(string(l.buf), math.MaxInt), l.cut
	if len(text) > wire.MaxLog {
		text, cut = strings.ToValidUTF8(text[len(text)-wire.MaxLog:], ""), true // not half a letter
	}
	if cut {
		if _, rest, _ := strings.Cut(text, "\n"); rest != "" {
			text = rest
		}
	}
	return text
}
