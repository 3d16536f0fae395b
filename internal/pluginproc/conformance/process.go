package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// badPayload is no JSON, so it fits no plugin, not even one that takes any field: nothing is done for it.
const badPayload = `{"` + noSuchField + `":`

// noSuchItem is the id of an item that the plugin does not have.
const noSuchItem = 4711

func checkExamples(ctx context.Context, s *session) error {
	for i, e := range s.d.Examples {
		it := s.example(e)
		if err := s.work(ctx, it); err != nil {
			return fmt.Errorf("example %d: %w", i+1, err)
		}
		r, err := s.result(it.Id)
		if err != nil {
			return err
		}
		if err := compare(e, r); err != nil {
			return fmt.Errorf("example %d (%s): %w", i+1, e.Payload, err)
		}
	}
	return nil
}

func compare(e *wire.Example, r *wire.Result) error {
	if r.Outcome != wire.Result_OUTCOME_DONE {
		return fmt.Errorf("is %s", said(r))
	}
	if len(e.Output) == 0 {
		return nil
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(e.Output, &want), json.Unmarshal(r.Output, &got)); err != nil {
		return fmt.Errorf("output %s: %w", r.Output, err)
	}
	if !reflect.DeepEqual(want, got) {
		return differs(string(e.Output), "", "gives %s, not %s", r.Output, e.Output)
	}
	return nil
}

// said describes a result in words.
func said(r *wire.Result) string {
	text := strings.TrimPrefix(r.Outcome.String(), "OUTCOME_")
	if r.Final {
		text += ", final"
	}
	if r.Ending != wire.Result_ENDING_RETURNED {
		text += ", " + strings.TrimPrefix(r.Ending.String(), "ENDING_")
	}
	if r.Code != "" {
		text += ", code " + r.Code
	}
	if r.Error != "" {
		text += ": " + tail(r.Error)
	}
	return text
}

func checkResults(ctx context.Context, s *session) error {
	output, err := settings.Compile(s.d.OutputSchema)
	if err != nil {
		return notChecked("the schema of the output cannot be read")
	}
	items := append(s.examples(), s.item(badPayload))
	if err := s.work(ctx, items...); err != nil {
		return err
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	for _, it := range items {
		r, err := s.result(it.Id)
		if err != nil {
			return err
		}
		if err := checkResult(s.d, output, r); err != nil {
			return fmt.Errorf("the result of %s: %w", it.Payload, err)
		}
	}
	for _, p := range s.progress {
		of := s.tasks[p.Id] // or of an earlier check
		if of == nil || p.Attempt > of.Item.Attempt || p.Done < 0 || p.Total < 0 {
			return differs("progress of items that it has, with numbers that are not negative",
				"report with id and attempt of the item", "it reports %d of %d %s of item %d, attempt %d", p.Done, p.Total, p.Unit,
				p.Id, p.Attempt)
		}
	}
	return nil
}

var codeForm = lazyregexp.New(`^[a-z0-9_]{0,64}$`)

// checkResult checks the fields of a result that ledgerd stores.
func checkResult(d *wire.DescribeResponse, output *settings.Schema, r *wire.Result) error {
	switch {
	case r.Outcome == wire.Result_OUTCOME_UNSPECIFIED:
		return differs("", "set an outcome", "it has no outcome")
	case !codeForm().MatchString(r.Code):
		return differs("a code of [a-z0-9_], at most 64 bytes", "", "code %q", r.Code)
	case len(r.Error) > wire.MaxError || len(r.Log) > wire.MaxLog || len(r.Output) > wire.MaxOutput:
		return differs(fmt.Sprintf("at most %d bytes of error, %d of log, %d of output", wire.MaxError, wire.MaxLog,
			wire.MaxOutput), "cut what is longer",
			"%d bytes of error, %d of log, %d of output", len(r.Error), len(r.Log), len(r.Output))
	case strings.ContainsRune(r.Error+r.Log, 0) || !utf8.ValidString(r.Error+r.Log):
		return differs("text without NUL", "replace what is not text", "error %q, log %q", r.Error, r.Log)
	case r.DelayMs < 0:
		return differs("a delay that is not negative", "", "delay_ms %d", r.DelayMs)
	}
	done := r.Outcome == wire.Result_OUTCOME_DONE || r.Outcome == wire.Result_OUTCOME_SKIPPED
	if len(r.Output) > 0 {
		if !json.Valid(r.Output) {
			return differs("JSON", "write the output as JSON", "output %s", r.Output)
		}
		if err := output.Validate(r.Output); done && err != nil {
			return differs("an output by the schema of Describe", "correct the schema or the output", "output %s: %v", r.Output,
				err)
		}
	}
	for _, c := range r.Emit {
		if !slices.Contains(d.Emits, c.Kind) {
			return differs(fmt.Sprintf("items of the kinds %q, which Describe or Configure names", d.Emits),
				"name the kind in emits of Describe", "it emits an item of kind %q", c.Kind)
		}
		if c.Key == "" || len(c.Key) > wire.MaxKey || len(c.Payload) > wire.MaxPayload || !done {
			return differs(fmt.Sprintf("emitted items with a key of 1 to %d bytes and a payload of at most %d, beside DONE "+
				"or SKIPPED", wire.MaxKey, wire.MaxPayload), "",
				"it is %s and emits an item with a key of %d bytes and a payload of %d", said(r), len(c.Key), len(c.Payload))
		}
	}
	return nil
}

// refused returns an error unless a result is right for a payload that does not fit.
func refused(r *wire.Result) error {
	if r.Outcome != wire.Result_OUTCOME_FAILED || !r.Final || r.Code != "payload" {
		return differs("FAILED, final, code payload", "", "it is %s", said(r))
	}
	return nil
}

func checkPayload(ctx context.Context, s *session) error {
	schema, err := settings.Compile(s.d.InputSchema)
	if err != nil {
		return notChecked("the schema of the payload cannot be read")
	}
	for _, payload := range []string{`{"` + noSuchField + `":true}`, `[1]`, badPayload} {
		if schema.Validate([]byte(payload)) == nil {
			continue // it takes any field
		}
		it := s.item(payload)
		if err := s.work(ctx, it); err != nil {
			return fmt.Errorf("payload %s: %w", payload, err)
		}
		r, err := s.result(it.Id)
		if err != nil {
			return err
		}
		if err := refused(r); err != nil {
			return fmt.Errorf("payload %s: %w", payload, err)
		}
	}
	return nil
}

func checkLarge(ctx context.Context, s *session) error {
	it := s.item(badPayload + strings.Repeat(" ", wire.MaxPayload-len(badPayload)))
	if err := s.work(ctx, it); err != nil {
		return fmt.Errorf("a payload of 1 MiB: %w", err)
	}
	_, err := s.result(it.Id) // checkPayload and checkResults look at its fields
	return err
}

// unknownField adds a field to a message, as a later version of the protocol may have it.
func unknownField(m proto.Message) {
	raw := protowire.AppendTag(nil, 1000, protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendString(raw, "from a newer ledgerd"))
}

func checkUnknownFields(ctx context.Context, s *session) error {
	ask := &wire.DescribeRequest{HostFeatures: []string{"unheard-of"}}
	configure := s.config()
	unknownField(ask)
	unknownField(configure)
	if _, err := s.Describe(ctx, ask); err != nil {
		return fmt.Errorf("the call Describe: %w", err)
	}
	if problems, err := s.Configure(ctx, configure); err != nil || len(problems) > 0 {
		return fmt.Errorf("the call Configure: %s", answer(problems, err))
	}
	if err := s.openStream(); err != nil {
		return err
	}
	items := append(s.examples(), s.item(badPayload))
	for _, it := range items {
		unknownField(it)
	}
	s.stream.Cancel(noSuchItem, 1, wire.Cancel_Reason(99))
	return s.work(ctx, items...)
}

func checkMany(ctx context.Context, s *session) error {
	items := make([]*wire.Item, 1000)
	for i := range items {
		items[i] = s.item(badPayload)
	}
	if err := s.work(ctx, items...); err != nil {
		return err
	}
	if err := s.finish(ctx); err != nil { // further results may be on their way
		return err
	}
	for _, it := range items {
		r, err := s.result(it.Id)
		if err != nil {
			return err
		}
		if r.Attempt != it.Attempt || !bytes.Equal(r.LockId, it.LockId) {
			return fmt.Errorf("the result of item %d has attempt %d and lock_id %q, not its own", r.Id, r.Attempt, r.LockId)
		}
	}
	return nil
}

func checkAgain(ctx context.Context, s *session) error {
	for i, e := range s.d.Examples {
		it := s.example(e)
		for it.Attempt <= 2 {
			if err := s.work(ctx, it); err != nil {
				return fmt.Errorf("example %d, attempt %d: %w", i+1, it.Attempt, err)
			}
			r, err := s.result(it.Id)
			if err != nil {
				return fmt.Errorf("attempt %d: %w", it.Attempt, err)
			}
			if it.Attempt == 1 && r.Outcome != wire.Result_OUTCOME_DONE {
				break // checkExamples reports it
			}
			if r.Outcome != wire.Result_OUTCOME_DONE && r.Outcome != wire.Result_OUTCOME_SKIPPED {
				return fmt.Errorf("example %d: a second attempt with the same idempotency key is %s", i+1, said(r))
			}
			it = proto.CloneOf(it)
			it.Attempt++
		}
	}
	return nil
}
