package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func checkByHand(ctx context.Context, t Target) error {
	cmd := exec.CommandContext(ctx, t.Spec.Path, t.Spec.Args...)
	cmd.Dir = t.Spec.Dir
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case cmd.ProcessState == nil:
		return err
	case cmd.ProcessState.ExitCode() != 1:
		return fmt.Errorf("started without the cookie it exits with %d, not 1", cmd.ProcessState.ExitCode())
	case stdout.Len() > 0:
		return fmt.Errorf("started without the cookie it writes %q to stdout", stdout.String())
	case stderr.Len() == 0:
		return errors.New("started without the cookie it says nothing on stderr")
	}
	return nil
}

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	versionForm = regexp.MustCompile(`^\d+\.\d+\.\d+([-+].*)?$`)
)

func checkDescribe(ctx context.Context, t Target) error {
	s, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	again, err := s.Describe(ctx, &wire.DescribeRequest{HostFeatures: []string{"unheard-of"}})
	if err != nil {
		return err
	}
	if !proto.Equal(s.d, again) {
		return errors.New("a second Describe says something else")
	}
	d := s.d
	switch {
	case !nameForm.MatchString(d.Name):
		return fmt.Errorf("name %q is not [a-z0-9][a-z0-9-]{0,63}", d.Name)
	case !versionForm.MatchString(d.Version):
		return fmt.Errorf("version %q is not semantic", d.Version)
	case d.Concurrency < 1:
		return fmt.Errorf("concurrency is %d", d.Concurrency)
	}
	config, err := settings.Compile(d.ConfigSchema)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	input, err := settings.Compile(d.InputSchema)
	if err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	if _, err := settings.Compile(d.OutputSchema); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	for _, secret := range d.Secrets {
		if !slices.Contains(config.Secrets(), secret) {
			return fmt.Errorf("secret %q is no writeOnly field of the config's schema", secret)
		}
	}
	return describeInput(d, input)
}

func describeInput(d *wire.DescribeResponse, input *settings.Schema) error {
	if in := d.Input; in != nil {
		known := slices.ContainsFunc(input.Fields(), func(f settings.Field) bool { return f.Name == in.Field && f.Type == "text" })
		if !known || !slices.Contains([]string{"file", "url", "line"}, in.Type) {
			return fmt.Errorf("input %q of type %q is not a text field of the payload of type file, url or line", in.Field, in.Type)
		}
	}
	for _, glob := range d.Match {
		if _, err := path.Match(glob, ""); err != nil || d.Input.GetType() != "file" {
			return fmt.Errorf("match %q is not a glob for an input of type file", glob)
		}
	}
	for i, e := range d.Examples {
		if err := input.Validate(e.Payload); err != nil {
			return fmt.Errorf("example %d: payload: %w", i+1, err)
		}
	}
	return nil
}

func checkPlain(ctx context.Context, t Target) error {
	t.Spec.NoMTLS = true
	s, err := t.start(ctx)
	if err == nil {
		s.Kill()
	}
	return err
}

func checkConfig(ctx context.Context, t Target) error {
	s, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	schema, err := settings.Compile(s.d.ConfigSchema)
	if err != nil {
		return err
	}
	wrong := map[string]string{"no_such_field_here": `true`}
	for _, f := range schema.Fields() {
		if !f.Secret && f.Type != "anything" {
			wrong[f.Name] = `{"no":["such","value"]}`
		}
	}
	for field, value := range wrong {
		config, err := spoil(schema, t.Config, field, value)
		if err != nil {
			return err
		}
		problems, err := s.Configure(ctx, &wire.ConfigureRequest{Config: config, Secrets: t.Secrets, ValidateOnly: true})
		if err != nil {
			return fmt.Errorf("the call Configure: %w", err)
		}
		if !slices.ContainsFunc(problems, func(p *wire.Problem) bool { return strings.HasPrefix(p.Field, field) }) {
			return fmt.Errorf("a config with %s = %s is not refused with the name of the field, but %v", field, value, problems)
		}
	}
	for _, only := range []bool{true, true, false} {
		problems, err := s.Configure(ctx, &wire.ConfigureRequest{Config: t.Config, Secrets: t.Secrets, ValidateOnly: only})
		if err != nil || len(problems) > 0 {
			return fmt.Errorf("the config (validate_only=%t) is refused: %v %v", only, problems, err)
		}
	}
	if _, err := s.CheckHealth(ctx); err != nil {
		return fmt.Errorf("CheckHealth: %w", err)
	}
	return nil
}

// spoil sets a field of a config to a value, known or not.
func spoil(schema *settings.Schema, config []byte, field, value string) ([]byte, error) {
	if raw, err := schema.Parse(config, []string{field + ":=" + value}); err == nil {
		return raw, nil
	}
	fields := map[string]json.RawMessage{}
	if len(config) > 0 {
		if err := json.Unmarshal(config, &fields); err != nil {
			return nil, err
		}
	}
	fields[field] = json.RawMessage(value)
	return json.Marshal(fields)
}

func checkSecrets(ctx context.Context, t Target) error {
	s, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	const mark = "5ecret-mark-0815"
	secrets := map[string]string{}
	for _, name := range s.d.Secrets {
		secrets[name] = mark
	}
	problems, err := s.Configure(ctx, &wire.ConfigureRequest{Config: []byte(`{"no_such_field_here":1}`), Secrets: secrets, ValidateOnly: true})
	if err != nil {
		return err
	}
	after, err := s.Describe(ctx, &wire.DescribeRequest{})
	if err != nil {
		return err
	}
	s.Stop(ctx, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(fmt.Sprint(problems, after)+s.output.String(), mark) {
		return errors.New("the value of a secret appears in an answer or in the output")
	}
	return nil
}

func checkExamples(ctx context.Context, t Target) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	for i, e := range s.d.Examples {
		id := int64(i + 1)
		it := s.item(id, string(e.Payload))
		it.Key = exampleKey(s.d, e, it.Key)
		if err := s.work(ctx, it); err != nil {
			return fmt.Errorf("example %d: %w", id, err)
		}
		r, err := s.result(id)
		if err != nil {
			return err
		}
		if err := compare(e, r); err != nil {
			return fmt.Errorf("example %d (%s): %w", id, e.Payload, err)
		}
	}
	return nil
}

// exampleKey is the key that the command line would give an example.
func exampleKey(d *wire.DescribeResponse, e *wire.Example, otherwise string) string {
	var fields map[string]any
	if d.Input == nil || json.Unmarshal(e.Payload, &fields) != nil {
		return otherwise
	}
	if key, ok := fields[d.Input.Field].(string); ok {
		return key
	}
	return otherwise
}

func compare(e *wire.Example, r *wire.Result) error {
	if r.Outcome != wire.Result_OUTCOME_DONE {
		return fmt.Errorf("is %v: %s %s", r.Outcome, r.Code, r.Error)
	}
	if len(e.Output) == 0 {
		return nil
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(e.Output, &want), json.Unmarshal(r.Output, &got)); err != nil {
		return fmt.Errorf("output %s: %w", r.Output, err)
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("gives %s, not %s", r.Output, e.Output)
	}
	return nil
}

// badPayload fits no plugin: it is no JSON.
const badPayload = `{"no_such_field_here":`

func checkPayload(ctx context.Context, t Target) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	schema, err := settings.Compile(s.d.InputSchema)
	if err != nil {
		return err
	}
	for i, payload := range []string{`{"no_such_field_here":true}`, `[1]`, badPayload} {
		if schema.Validate([]byte(payload)) == nil {
			continue // a plugin that takes any
		}
		id := int64(i + 1)
		if err := s.work(ctx, s.item(id, payload)); err != nil {
			return fmt.Errorf("payload %s: %w", payload, err)
		}
		r, err := s.result(id)
		if err != nil {
			return err
		}
		if r.Outcome != wire.Result_OUTCOME_FAILED || !r.Final || r.Code != "payload" {
			return fmt.Errorf("payload %s: is %v, final %t, code %q; want FAILED, final, code payload", payload, r.Outcome, r.Final, r.Code)
		}
	}
	return nil
}

func checkMany(ctx context.Context, t Target) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	items := make([]*wire.Item, 1000)
	for i := range items {
		items[i] = s.item(int64(i+1), badPayload)
	}
	if err := s.work(ctx, items...); err != nil {
		return err
	}
	s.Stop(ctx, time.Second) // whatever is still on its way
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

func checkCancel(ctx context.Context, t Target) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	s.stream.Cancel(4711, 1, wire.Cancel_REASON_CANCELLED)
	if err := s.work(ctx, s.item(1, badPayload)); err != nil {
		return err
	}
	s.stream.Cancel(1, 1, wire.Cancel_REASON_LEASE_LOST)
	if err := s.work(ctx, s.item(2, badPayload)); err != nil {
		return err
	}
	_, err = s.result(1)
	return err
}

func checkDrain(ctx context.Context, t Target) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	began := time.Now()
	s.Stop(ctx, 0)
	if took := time.Since(began); took > slack*drainBound {
		return fmt.Errorf("without anything to do, it was gone after %v", took)
	}
	if !s.State().Success() {
		return fmt.Errorf("told to end with nothing to do, it did not exit with 0 (%v)", s.State())
	}
	return nil
}

func checkOrphan(ctx context.Context, t Target) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	s.HangUp()
	select {
	case <-s.Done():
		return nil
	case <-time.After(slack * orphanBound):
		return errors.New("it lives on after the end of stdin")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
