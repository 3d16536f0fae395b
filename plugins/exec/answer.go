package exec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// answer is a line in which a command that stays reports how an item ended. Its fields are those of an ending in the
// HTTP API.
type answer struct {
	ID      json.Number       `json:"id"`
	Outcome string            `json:"outcome"`
	Output  json.RawMessage   `json:"output"`
	Error   *string           `json:"error"` // "" is an error, too: exceptions may have no text
	Code    string            `json:"code"`
	Final   bool              `json:"final"`
	Delay   *float64          `json:"delay_s"`
	AtMost  int               `json:"at_most"`
	Emit    []json.RawMessage `json:"emit"` // each a child

	fault error // why the line is no answer; nil if it is one
}

// child is an item that an answer adds.
type child struct {
	Kind        string          `json:"kind"`
	Scope       string          `json:"scope"`
	Key         string          `json:"key"`
	Fingerprint string          `json:"fingerprint"`
	Payload     json.RawMessage `json:"payload"`
	Due         time.Time       `json:"due"`
	Priority    int             `json:"priority"`
}

const maxDelay = 30 * 24 * time.Hour

// readAnswer reads a line as the answer for r, the item at work; r is nil if no item is. cut means that the line was
// longer than maxResult. Secrets are hidden in texts for people, but not in items to add: a key with stars would be
// another key.
func readAnswer(line string, cut bool, r *run, secrets *redact.Secrets) (a answer) {
	line = strings.ToValidUTF8(line, "\uFFFD")
	if r == nil {
		a.fault = fmt.Errorf("it printed %.200q, but no item was at work: print one answer for each line of stdin, and "+
			"everything else to stderr; the process is replaced", secrets.Hide(line))
		return a
	}
	wrong := func(format string, args ...any) answer {
		text := fmt.Sprintf(format, args...)
		return answer{fault: fmt.Errorf("stdout, %.200q: %s; answer with one line such as {"+`"id":%d,"output":…}, and `+
			"print everything else to stderr", secrets.Hide(line), secrets.Hide(text), r.item.ID)}
	}
	if cut {
		return wrong("the line has more than %d bytes: write a large result to a file and give its name", maxResult)
	}
	fields := json.NewDecoder(strings.NewReader(line))
	fields.DisallowUnknownFields()
	if err := fields.Decode(&a); err != nil {
		return wrong("no answer: %s", plain(err))
	}
	if _, err := fields.Token(); !errors.Is(err, io.EOF) {
		return wrong("there is more after the answer")
	}
	if a.ID.String() != fmt.Sprint(r.item.ID) {
		return wrong("the id is %q, and the item at work has the id %d", a.ID, r.item.ID)
	}
	a.Output, a.Code = secrets.JSON(a.Output), secrets.Hide(a.Code)
	if a.Error != nil {
		*a.Error = secrets.Hide(*a.Error)
		a.Outcome = cmp.Or(a.Outcome, "failed")
	}
	a.Outcome = cmp.Or(a.Outcome, "done")
	switch a.Outcome {
	case "done":
		if a.Error != nil || a.Code != "" || a.Final || a.Delay != nil {
			return wrong("an item that is done has no error, code, final or delay_s")
		}
	case "skipped", "failed", "snoozed", "unknown":
	default:
		return wrong("the outcome %q is none of done, skipped, failed, snoozed, unknown", a.Outcome)
	}
	if len(a.Emit) > 0 && a.Outcome != "done" && a.Outcome != "skipped" {
		return wrong("only an item that is done or skipped adds items")
	}
	if a.Delay != nil && (*a.Delay < 0 || *a.Delay > maxDelay.Seconds()) {
		return wrong("delay_s is not between 0 and %d", int(maxDelay.Seconds()))
	}
	if a.AtMost != 0 && (a.Outcome != "snoozed" || a.Code == "" || a.AtMost < 1 || a.AtMost > 100) {
		return wrong("at_most needs the outcome snoozed and a code, and must be 1 … 100")
	}
	return a
}

// looksLikeAnswer reports whether the last line is an answer for the item, as a command with stay=true prints it, not
// an ordinary result.
func (o *result) looksLikeAnswer(item int64) bool {
	fields := json.NewDecoder(bytes.NewReader(o.last))
	fields.DisallowUnknownFields()
	var a answer
	return fields.Decode(&a) == nil && a.ID.String() == fmt.Sprint(item) &&
		(a.Output != nil || a.Error != nil || a.Outcome != "" || a.Emit != nil)
}

// plain is an error of JSON without the types of Go.
func plain(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s has the type %s", cmp.Or(e.Field, "it"), e.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// outcome emits the items of an answer, and converts it to the results of the plugin's function.
func (a answer) outcome(r *run) (json.RawMessage, error) {
	for _, text := range a.Emit {
		if err := r.emit(text); err != nil {
			return a.Output, sdk.Permanent(sdk.Code("emit_refused", errors.New(r.cfg.secrets.Hide(err.Error()))))
		}
	}
	text := "no reason was given"
	if a.Error != nil && *a.Error != "" {
		text = *a.Error
	}
	delay := r.cfg.SnoozeFor
	if a.Delay != nil {
		delay = time.Duration(*a.Delay * float64(time.Second))
	}
	err := errors.New(text)
	switch {
	case a.Outcome == "done":
		return a.Output, nil
	case a.Outcome == "skipped":
		err = sdk.Skip(text)
	case a.Outcome == "snoozed" && a.AtMost > 0:
		err = sdk.SnoozeAtMost(a.AtMost, delay, err)
	case a.Outcome == "snoozed":
		err = sdk.Snooze(delay, text)
	case a.Outcome == "unknown":
		err = sdk.Doubt(err)
	case a.Final:
		err = sdk.Permanent(err)
	default:
		if a.Delay != nil {
			err = sdk.RetryAfter(delay, err)
		}
	}
	if a.Code != "" {
		err = sdk.Code(a.Code, err)
	}
	return a.Output, err
}

// emit adds an item.
func (r *run) emit(text json.RawMessage) error {
	var c child
	fields := json.NewDecoder(bytes.NewReader(text))
	fields.DisallowUnknownFields()
	if err := fields.Decode(&c); err != nil {
		return fmt.Errorf("emit: %s", plain(err))
	}
	names := c.Kind + "\n" + c.Key + "\n" + c.Scope + "\n" + c.Fingerprint
	if strings.ContainsRune(names, '\uFFFD') { // encoding/json replaces bytes that are not UTF-8 with it
		return errors.New("emit: kind, key, scope and fingerprint must be UTF-8 without U+FFFD")
	}
	if hide := r.cfg.secrets; hide.Hide(names) != names || !bytes.Equal(hide.JSON(c.Payload), c.Payload) {
		return errors.New("emit: an item to add has a value of secret_env in it")
	}
	n := sdk.Child{Kind: c.Kind, Scope: c.Scope, Key: c.Key, Fingerprint: c.Fingerprint, Due: c.Due, Priority: c.Priority}
	if len(c.Payload) > 0 {
		n.Payload = c.Payload
	}
	return r.item.Emit(n)
}
