package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func checkConfig(ctx context.Context, s *session) error {
	// The problem in the answer does not matter: a dependency that is down is no fault of the plugin.
	if _, err := s.CheckHealth(ctx); err != nil {
		return differs("", "implement CheckHealth: an empty answer means that all is well", "the call CheckHealth: %w", err)
	}
	return nil
}

// noSuchField is a field that no plugin has.
const noSuchField = "no_such_field_here"

func checkRefusals(ctx context.Context, s *session) error {
	schema, err := settings.Compile(s.d.ConfigSchema)
	if err != nil {
		return notChecked("the schema of the config cannot be read")
	}
	wrong := map[string]string{noSuchField: `true`}
	for _, f := range schema.Fields() {
		if !f.Secret && f.Type != "anything" {
			wrong[f.Name] = `{"no":["such","value"]}`
		}
	}
	for _, field := range slices.Sorted(maps.Keys(wrong)) {
		config, err := spoil(schema, s.target.Config, field, wrong[field])
		if err != nil {
			return err
		}
		if whole, err := schema.Merge(config, s.target.Secrets); err == nil && schema.Validate(whole) == nil {
			continue // it takes any field, or any value of this one
		}
		problems, err := s.Configure(ctx, &wire.ConfigureRequest{Config: config, Secrets: s.target.Secrets,
			ValidateOnly: true})
		if err != nil {
			return differs("", "a config that does not fit is a Problem in the answer, not an error of the call",
				"%s = %s: the call Configure: %w", field, wrong[field], err)
		}
		if !slices.ContainsFunc(problems, func(p *wire.Problem) bool { return strings.HasPrefix(p.Field, field) }) {
			return fmt.Errorf("a config with %s = %s is not refused with the name of the field: %s", field, wrong[field],
				texts(problems))
		}
	}
	return nil
}

// spoil sets a field of a config to a value, also a field that the schema does not have.
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

func checkValidateOnly(ctx context.Context, s *session) error {
	right := string(s.target.Config)
	calls := []struct {
		config       string
		validateOnly bool
	}{{right, true}, {right, true}, {`{"` + noSuchField + `":true}`, true}, {right, false}}
	for _, c := range calls {
		bad := strings.Contains(c.config, noSuchField)
		problems, err := s.Configure(ctx, &wire.ConfigureRequest{Config: []byte(c.config), Secrets: s.target.Secrets,
			ValidateOnly: c.validateOnly})
		if err == nil && len(problems) > 0 {
			err = errors.New(texts(problems))
		}
		if err != nil && !bad {
			return fmt.Errorf("after calls with validate_only, Configure (validate_only=%t) of the same config fails: %w",
				c.validateOnly, err)
		}
	}
	return nil
}

// secretMark is the value of each secret in checkSecrets.
const secretMark = "5ecret-mark-0815"

// checkSecrets needs all that processes have written since their start, so it shares none.
func checkSecrets(ctx context.Context, s *session) error {
	if len(s.d.Secrets) == 0 {
		return notChecked("the plugin has no secrets")
	}
	t := s.target
	t.shared = nil
	s, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	secrets := map[string]string{}
	for _, name := range s.d.Secrets {
		secrets[name] = secretMark
	}
	told := "" // to people
	for _, config := range []string{string(t.Config), `{"` + noSuchField + `":1}`} {
		problems, err := s.Configure(ctx, &wire.ConfigureRequest{Config: []byte(config), Secrets: secrets,
			ValidateOnly: true})
		told += texts(problems) + status.Convert(err).Message()
	}
	after, err := s.Describe(ctx, &wire.DescribeRequest{})
	if err != nil {
		return err
	}
	if strings.Contains(told, secretMark) {
		return differs("", "", "the value of a secret is in a Problem of the config")
	}
	if strings.Contains(string(pluginproc.JSON(after)), secretMark) {
		return differs("", "", "the value of a secret is in the answer of Describe")
	}
	if strings.Contains(s.outputAtEnd(), secretMark) {
		return differs("", "", "the value of a secret is on stderr or stdout")
	}
	return t.checkOwnSecrets(ctx)
}

// outputAtEnd kills the process and returns what it has written to stdout and stderr.
func (s *session) outputAtEnd() string {
	s.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.text.String()
}

// checkOwnSecrets looks for the secrets of the target in results and in the output of the process.
func (t Target) checkOwnSecrets(ctx context.Context) error {
	const shortest = 8 // bytes; a shorter value may be there by chance
	if len(t.Secrets) == 0 {
		return nil
	}
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	items := append(s.examples(), s.item(badPayload))
	if err := s.work(ctx, items...); err != nil {
		return err
	}
	said := s.outputAtEnd()
	for _, it := range items {
		for _, r := range s.results(s.tasks[it.Id]) {
			said += string(pluginproc.JSON(r))
		}
	}
	for name, value := range t.Secrets {
		if len(value) >= shortest && strings.Contains(said, value) {
			return fmt.Errorf("the value of the secret %s is in a result, on stderr or on stdout", name)
		}
	}
	return nil
}
