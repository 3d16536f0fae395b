package pluginhost

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Every result and heartbeat has the plugin's version, so a plugin with a version that a ledger refuses does not start.
func TestCheckVersion(t *testing.T) {
	for version, fine := range map[string]bool{
		"": true, "1.0.0-rc.1+build.7": true, "one of ours": true, strings.Repeat("1", longestVersion): true,
		strings.Repeat("1", longestVersion+1): false, "1\x00": false, "1\n2": false, "\xff": false,
	} {
		if err := checkVersion(version); (err == nil) != fine {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// Another version of a plugin has the same digest with the same settings, also if it has further fields. It has
// another digest with other settings, or if a value that was the default is not the default any more. A field that
// is not set has the default of each version.
func TestDefinitionOfVersions(t *testing.T) {
	definition := func(version, fields, config string) string {
		schema, err := settings.Compile([]byte(`{"type":"object","properties":{` + fields + `}}`))
		must.OK(t, err)
		s, err := (&Description{Name: "p", Version: version, Config: schema}).configure(&Config{
			Spec: Spec{hide: redact.New()}, Settings: []byte(config)})
		must.OK(t, err)
		_, _, digest := definition.Split(s.definition)
		if s.definition != "p@"+version+"+"+digest || len(digest) != 6 {
			t.Errorf("definition %q", s.definition)
		}
		return digest
	}
	const quality = `"quality":{"type":"integer","default":80},"box":{"type":"object","properties":{"w":{"type":"integer","default":1}}}`
	const more = quality + `,"strip":{"type":"boolean","default":true}`
	plain := definition("1.0.0", quality, `{}`)
	for _, tt := range []struct {
		fields, config string
		same           bool
	}{
		{more, `{}`, true},
		{more, `{"quality":80}`, true},
		{more, `{"quality":80,"box":{"w":1},"strip":true}`, true},
		{quality + `,"password":{"type":"string","writeOnly":true}`, `{"password":"geheim"}`, true},
		{more, `{"strip":false}`, false},
		{more, `{"quality":81}`, false},
		{more, `{"box":{"w":2}}`, false},
		{strings.Replace(quality, "80", "90", 1), `{"quality":80}`, false},
		{strings.Replace(quality, "80", "90", 1), `{}`, true},
	} {
		if got := definition("1.1.0", tt.fields, tt.config); (got == plain) != tt.same {
			t.Errorf("%s with %s: %s beside %s", tt.fields, tt.config, got, plain)
		}
	}
}

// A description is refused if it does not name the same secrets as its schema, or if its schema marks a secret in a
// place where it would not be found: the secret would be kept and shown.
func TestSecretsOfDescription(t *testing.T) {
	const token = `{"type":"string","writeOnly":true}`
	for _, tt := range []struct {
		field   string // a
		secrets []string
		want    string // of the error
	}{
		{token, []string{"a"}, ""},
		{`{"type":"object","properties":{"b":` + token + `}}`, []string{"a.b"}, ""},
		{`{"properties":{"b":` + token + `}}`, []string{"a.b"}, ""},
		{token, nil, `names [] as its secrets, and the writeOnly fields of its config are ["a"]`},
		{`{"type":"string"}`, []string{"a"}, `names ["a"] as its secrets`},
		{`{"type":"array","items":` + token + `}`, nil, "within a list"},
		{`{"type":"array","items":{"properties":{"b":` + token + `}}}`, []string{"a.b"}, "within a list"},
		{`{"type":"object","additionalProperties":` + token + `}`, nil, "within a list, a map"},
		{`{"anyOf":[` + token + `]}`, []string{"a"}, "or an alternative"},
		{`{"$defs":{"default":` + token + `},"$ref":"#/properties/a/$defs/default"}`, nil, "or behind a $ref"},
		{`{"properties":{"default":` + token + `},"default":` + token + `}`, []string{"a.default"}, ""},
		{`{"enum":[` + token + `],"const":` + token + `,"examples":[` + token + `]}`, nil, ""},
	} {
		_, err := newDescription(&wire.DescribeResponse{Name: "p", Version: "1.0.0", Secrets: tt.secrets,
			ConfigSchema: []byte(`{"type":"object","properties":{"a":` + tt.field + `}}`),
			InputSchema:  []byte(`{}`), OutputSchema: []byte(`{}`)}, Place{})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %q: %v", tt.field, tt.secrets, err)
		}
	}
}

// Possible secrets are masked in lists and maps, too.
func TestShowMasks(t *testing.T) {
	for config, want := range map[string]string{
		`{"targets":[{"password":"hunter2","url":"http://a:hunter2@b/"},7]}`:  `{"targets":[{"password":"***","url":"http://a:***@b/"},7]}`,
		`{"api_keys":["hunter2","",7]}`:                                       `{"api_keys":["***","",7]}`,
		`{"passwords":{"host":"hunter2","other":{"x":["hunter2"],"n":null}}}`: `{"passwords":{"host":"***","other":{"n":null,"x":["***"]}}}`,
		`{"password":"","names":["hunter"]}`:                                  `{"names":["hunter"],"password":""}`,
	} {
		var value any
		must.OK(t, json.Unmarshal([]byte(config), &value))
		if text, err := plainJSON(show(value, 500)); err != nil || string(text) != want {
			t.Errorf("%s: %s, %v", config, text, err)
		}
	}
}
