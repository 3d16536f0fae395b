package ledger

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/payload"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

const (
	maxInput = 4096      // bytes of a Kind's Input as JSON
	maxKinds = 256 << 10 // bytes of an Agent's Kinds and Stalled as JSON

	maxDefaults = 64 << 10 // bytes of a Kind's Defaults as JSON
)

var (
	kindRE = lazyregexp.New(`^[a-z0-9][a-z0-9-]*$`)
	codeRE = lazyregexp.New(`^[a-z0-9_]{1,64}$`)
	number = message.NewPrinter(language.English) // "2,311"
)

// checker collects the first broken rule of one batch entry.
type checker struct {
	index int
	err   error
	named string // a kind whose name was checked
}

func (c *checker) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = &InvalidError{Index: c.index, Field: field, Reason: number.Sprintf(format, args...)}
	}
}

// text checks a string that identifies or describes something. A wrong string is refused, never changed.
func (c *checker) text(field, s string, limit int) {
	switch {
	case len(s) > limit:
		c.fail(field, "%d bytes, at most %d", len(s), limit)
	case !utf8.ValidString(s):
		c.fail(field, "not valid UTF-8")
	case strings.ContainsRune(s, 0):
		c.fail(field, "contains a NUL byte")
	}
}

// config checks the settings of a kind, as JSON.
func (c *checker) config(s string) {
	c.text("config", s, bounds.MaxConfig)
	if s != "" && (s[0] != '{' || !json.Valid([]byte(s))) {
		c.fail("config", "is no JSON object")
	}
}

func (c *checker) bytes(field string, b []byte, limit int) {
	if len(b) > limit {
		c.fail(field, "%d bytes, at most %d", len(b), limit)
	}
}

func (c *checker) kind(s string) {
	switch {
	case s == "":
		c.fail("kind", "is empty")
	case len(s) > bounds.MaxKind:
		c.fail("kind", "%d bytes, at most %d", len(s), bounds.MaxKind)
	case s != c.named && !kindRE().MatchString(s):
		c.fail("kind", "%q: only a-z, 0-9 and -, not - first", s)
	default:
		c.named = s // most items are of one kind
	}
}

func (c *checker) agent(s string) {
	if s == "" {
		c.fail("agent", "is empty")
	}
	c.text("agent", s, bounds.MaxAgent)
}

func (c *checker) ttl(d time.Duration) {
	if d < bounds.MinTTL || d > bounds.MaxTTL {
		c.fail("ttl", "%s, must be %s … %s", d.String(), bounds.MinTTL.String(), bounds.MaxTTL.String())
	}
}

func checkLimit(n int) error {
	c := checker{}
	c.batch("limit", n)
	return c.err
}

func (c *checker) batch(field string, n int) {
	if n < 1 || n > bounds.MaxBatch {
		c.fail(field, "%d, must be 1 … %d", n, bounds.MaxBatch)
	}
}

// CheckItem returns the *InvalidError that Add would return for an item; nil if it is valid.
func CheckItem(n NewItem) error {
	c := checker{}
	c.item(&n)
	return c.err
}

// CheckName returns an *InvalidError if the kind's name is not valid.
func (k Kind) CheckName() error {
	c := checker{}
	c.kind(k.Name)
	return c.err
}

func (c *checker) priority(p int16) {
	if p < bounds.MinPriority || p > bounds.MaxPriority {
		c.fail("priority", "%d, must be %d … %d", p, bounds.MinPriority, bounds.MaxPriority)
	}
}

func (c *checker) item(n *NewItem) {
	c.kind(n.Kind)
	if n.Key == "" {
		c.fail("key", "is empty")
	}
	for i := range ItemTexts {
		t := &ItemTexts[i]
		c.text(t.Column, *t.Of(n), t.Max)
	}
	c.bytes("payload", n.Payload, bounds.MaxPayload)
	c.priority(n.Priority)
	if due := n.Due.UTC(); !due.IsZero() && (due.Year() < 1970 || due.Year() > 9999) {
		c.fail("due", "%s is not between the years 1970 and 9999", due.Format(time.RFC3339))
	}
	if c.err == nil && n.Every != "" {
		if _, err := recurrence.Parse(n.Every, n.Zone); err != nil {
			bad := err.(*recurrence.Error)
			c.fail(bad.Field, "%s", bad.Reason)
		}
	} else if n.Zone != "" && n.Every == "" {
		c.fail("zone", "is given without every")
	}
}

func (c *checker) claim(q Claim) {
	c.kind(q.Kind)
	c.agent(q.Agent)
	c.batch("limit", q.Limit)
	c.ttl(q.TTL)
	c.chosen(q.Items)
	c.shard(q.Shard)
}

func (c *checker) shard(s scheduler.Shard) {
	if s != (scheduler.Shard{}) && (s.Count < 1 || s.Count > scheduler.Slots || s.Index < 0 || s.Index >= s.Count) {
		c.fail("shard", "%d/%d, must be 0 ≤ index < count ≤ %d", s.Index, s.Count, scheduler.Slots)
	}
}

// chosen checks the items of a claim that names them.
func (c *checker) chosen(items []int64) {
	if len(items) > bounds.MaxBatch {
		c.fail("items", "%d ids, at most %d", len(items), bounds.MaxBatch)
		return
	}
	seen := make(map[int64]bool, len(items))
	for _, id := range items {
		if id < 1 || seen[id] {
			c.fail("items", "%d, must be different ids from 1 on", id)
		}
		seen[id] = true
	}
}

// result checks what a handler reported. It cuts a log that is too long; an output that is too long is an error.
func (c *checker) result(r *Result) {
	switch r.Outcome {
	case OutcomeDone, OutcomeSkipped, OutcomeFailed, OutcomeSnoozed, OutcomeReleased, OutcomeCancelled, OutcomeUnknown,
		OutcomeCrashed:
	default:
		c.fail("outcome", "%q is none that a holder may report", string(r.Outcome))
	}
	// Only these outcomes can be without a report; a process that died never has one.
	r.NoReport = r.Outcome == OutcomeCrashed || r.NoReport && r.Outcome == OutcomeFailed
	c.bytes("output", r.Output, bounds.MaxOutput)
	if slices.Contains([]string{codeRoundDone, codePutOff, codeRestored}, r.Code) { // they mean something to the rules
		r.Code = "reported_" + r.Code
	}
	if r.Code != "" && !codeRE().MatchString(r.Code) {
		c.fail("code", "%q: only a-z, 0-9 and _, at most %d", r.Code, bounds.MaxCode)
	}
	if r.Delay < 0 || r.Delay > bounds.MaxDelay {
		c.fail("delay", "%s, must be 0 … %s", r.Delay.String(), bounds.MaxDelay.String())
	}
	if r.AtMost < 0 || r.AtMost > bounds.MaxSnoozes {
		c.fail("at_most", "%d, must be 0 … %d", r.AtMost, bounds.MaxSnoozes)
	}
	c.text("worker", r.Worker, bounds.MaxWorker)
	if len(r.Emit) > bounds.MaxEmit {
		c.fail("emit", "%d items, at most %d", len(r.Emit), bounds.MaxEmit)
	}
	if len(r.Emit) > 0 && !r.Outcome.Completed() {
		c.fail("emit", "goes only with done and skipped, not with %s", string(r.Outcome))
	}
	for i, n := range r.Emit {
		if err := CheckItem(n); err != nil {
			c.fail("emit", "item %d: %s", i, err.Error())
		}
	}
	r.Error = head(clean(r.Error), bounds.MaxError)
	r.Log = tail(clean(r.Log), bounds.MaxLog)
}

// clean returns the text in a form that every database can store. It repairs such a text, since it only describes.
func clean(s string) string {
	if utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// head returns the longest prefix of whole characters within limit bytes.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// tail returns the longest suffix of whole characters within limit bytes.
func tail(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	i := len(s) - limit
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

func (c *checker) backoff(b Backoff) {
	if b.Cap > 0 && b.Base > b.Cap {
		c.fail("backoff_base", "%s, must be at most backoff_cap, %s", b.Base.String(), b.Cap.String())
	}
}

func (c *checker) policy(k Kind) {
	c.kind(k.Name)
	if k.Plugin != "" && (len(k.Plugin) > bounds.MaxKind || !kindRE().MatchString(k.Plugin)) {
		c.fail("plugin", "%q: only a-z, 0-9 and -, not - first, at most %d bytes", k.Plugin, bounds.MaxKind)
	}
	switch k.Input.Type {
	case "", "file", "url", "line":
	default:
		c.fail("input", "%q, must be file, url or line", k.Input.Type)
	}
	if k.OnLost != "" && k.OnLost != OnLostRepeat && k.OnLost != OnLostDoubt {
		c.fail("on_lost", "%q, must be %s or %s", string(k.OnLost), string(OnLostRepeat), string(OnLostDoubt))
	}
	for _, n := range []struct {
		field string
		value int
	}{{"max_failures", k.MaxFailures}, {"max_crashes", k.MaxCrashes}, {"max_lost", k.MaxLost}} {
		if n.value < 0 || n.value > 10_000 {
			c.fail(n.field, "%d, must be 0 … 10,000", n.value)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"backoff_base", k.Backoff.Base}, {"backoff_cap", k.Backoff.Cap}, {"timeout", k.Timeout}, {"keep", k.Keep}} {
		if d.field == "keep" && d.value == KeepForever {
			continue
		}
		if d.value < 0 || d.value > bounds.MaxDelay || d.value%time.Microsecond != 0 {
			c.fail(d.field, "%s, must be 0 … %s, in whole microseconds", d.value.String(), bounds.MaxDelay.String())
		}
	}
	k.Limits.Check(c.fail)
	c.text("definition", k.Definition, bounds.MaxWorker)
	c.config(k.Config)
	c.defaults(k.Defaults)
	if b, err := json.Marshal(k.Input); err != nil || len(b) > maxInput {
		c.fail("input", "%d bytes as JSON, at most %d", len(b), maxInput)
	}
	c.text("input", k.Input.Field+k.Input.Modified+k.Input.Owner+strings.Join(k.Input.Match, ""), maxInput)
}

func (c *checker) defaults(d payload.Defaults) {
	for name, def := range d {
		if name == "" {
			c.fail("defaults", "a default has no name")
		}
		if !json.Valid(def.Value) {
			c.fail("defaults", "the value of %q is not JSON", name)
		}
	}
	if b, err := json.Marshal(d); err != nil || len(b) > maxDefaults {
		c.fail("defaults", "%d bytes as JSON, at most %d", len(b), maxDefaults)
	}
}

// plugin checks the state of a plugin in a heartbeat.
func (c *checker) plugin(p health.Plugin) {
	c.text("plugin version", p.Version, bounds.MaxWorker)
	c.text("plugin code", p.Code, bounds.MaxCode)
	c.text("plugin error", p.Error, health.MaxError)
	if !slices.Contains(health.States, p.State) || p.Restarts < 0 || p.RSS < 0 {
		c.fail("plugins", "unknown state or negative number: state %q, %d restarts, %d bytes of memory", p.State, p.Restarts,
			p.RSS)
	}
}
