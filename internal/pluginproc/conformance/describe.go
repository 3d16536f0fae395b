package conformance

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func checkDescribe(ctx context.Context, s *session) error {
	again, err := s.Describe(ctx, &wire.DescribeRequest{HostVersion: "99.0.0", HostFeatures: []string{"unheard-of"}})
	if err != nil {
		return fmt.Errorf("the second call Describe: %w", err)
	}
	if !proto.Equal(s.d, again) {
		return errors.New("a second Describe has another answer")
	}
	other, err := s.target.start(ctx)
	if err != nil {
		return err
	}
	defer other.leave(nil)
	if !proto.Equal(s.d, other.d) {
		return errors.New("another process of the same program has another answer")
	}
	return describeFields(s.d)
}

func describeFields(d *wire.DescribeResponse) error {
	switch {
	case !wire.NameForm().MatchString(d.Name):
		return differs("", "choose a name of small letters, digits and -", "name %q is not [a-z0-9][a-z0-9-]{0,63}", d.Name)
	case !wire.VersionForm().MatchString(d.Version):
		return differs("", "give it a version such as 1.2.3", "version %q is not semantic", d.Version)
	case d.Concurrency < 1:
		return differs("", "say how many items are worked at a time, at least 1", "concurrency is %d", d.Concurrency)
	case d.TimeoutMs < 0 || d.MaxFailures < 0 || d.MaxBatch < 0 || d.MaxWaitMs < 0:
		return differs("", "leave out what is not limited", "timeout_ms, max_failures, max_batch or max_wait_ms is negative")
	}
	for _, kind := range d.Emits {
		if !wire.NameForm().MatchString(kind) {
			return differs("", "name kinds in small letters, digits and -", "it emits %q, which is not a name of a kind", kind)
		}
	}
	return nil
}

func checkName(ctx context.Context, s *session) error {
	if s.target.Name != "" && s.d.Name != s.target.Name {
		return fmt.Errorf("it is called %s here, and calls itself %q", s.target.Name, s.d.Name)
	}
	return nil
}

func checkSize(ctx context.Context, s *session) error {
	return pluginproc.CheckDescription(s.d)
}

func checkSchemas(ctx context.Context, s *session) error {
	d := s.d
	config, err := settings.Compile(d.ConfigSchema)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if err := config.CheckSecrets(); err != nil {
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
			return differs("", `give the field "writeOnly": true in the schema of the config`,
				"secret %q is not a writeOnly field of the config's schema", secret)
		}
	}
	for _, secret := range config.Secrets() {
		if !slices.Contains(d.Secrets, secret) {
			return differs("", "name it in secrets of Describe: it travels apart from the config then",
				"the config's field %q is writeOnly but not among its secrets", secret)
		}
	}
	return describeInput(d, input)
}

func describeInput(d *wire.DescribeResponse, input *settings.Schema) error {
	isText := func(name string) bool {
		return slices.ContainsFunc(input.Fields(), func(f settings.Field) bool { return f.Name == name && f.Type == "text" })
	}
	if in := d.Input; in != nil {
		if !isText(in.Field) || !slices.Contains([]string{"file", "url", "line"}, in.Type) {
			return fmt.Errorf("input %q of type %q is not a text field of the payload of type file, url or line", in.Field,
				in.Type)
		}
		for _, field := range []string{in.Modified, in.Owner} {
			if field != "" && (!isText(field) || in.Type != "file") {
				return fmt.Errorf("%q, which is to be filled from the file, is not a text field beside an input of type file", field)
			}
		}
	}
	for _, glob := range d.Match {
		if _, err := path.Match(glob, ""); err != nil || d.Input.GetType() != "file" {
			return fmt.Errorf("match %q is not a glob for an input of type file", glob)
		}
	}
	return nil
}

func checkDescribedExamples(ctx context.Context, s *session) error {
	if len(s.d.Examples) == 0 {
		return errNoExamples
	}
	input, err := settings.Compile(s.d.InputSchema)
	if err != nil {
		return notChecked("the schema of the payload cannot be read")
	}
	output, err := settings.Compile(s.d.OutputSchema)
	if err != nil {
		return notChecked("the schema of the output cannot be read")
	}
	for i, e := range s.d.Examples {
		if err := input.Validate(e.Payload); err != nil {
			return fmt.Errorf("example %d: payload: %w", i+1, err)
		}
		if len(e.Output) == 0 {
			continue
		}
		if err := output.Validate(e.Output); err != nil {
			return fmt.Errorf("example %d: output: %w", i+1, err)
		}
	}
	return nil
}
