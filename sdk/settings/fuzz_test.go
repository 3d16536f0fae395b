package settings_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// FuzzParse: typed text becomes JSON of the same value, or an error that names the field and shows
// no secret. A valid value is still valid after Fill.
func FuzzParse(f *testing.F) {
	for _, a := range []string{"path=x", "rows=5", "rows=+5", "rows=05", "rows=1e1", "ratio=.5", "ratio=1e400",
		"header=true", "accept=", "accept=200, 300", "columns=a,b,c,d",
		"every=7d", "every:=5", "every=1e9s", "token=hunter22", "mail.port=25", "mail.password=pa", "mail=x", "mail:={}",
		"labels.a=1", "labels.a.b=1", "rest.x.y=z", "rest:=[1,{}]", "path:=null",
		"paht=x", "=x", ":=x", "x", "path=\xff", "path=\x00", "code=abc", ".=1", "mail..host=1", "rest:=" +
			strings.Repeat("[", 500) + strings.Repeat("]", 500)} {
		f.Add(a, "hunter22")
	}
	s := compile(f, schema)
	f.Fuzz(func(t *testing.T, a, secret string) {
		got, err := s.Parse([]byte(`{"path":"p"}`), []string{a})
		check := func(err error) {
			var mistake *settings.Error
			if err != nil && (!errors.As(err, &mistake) || len(mistake.Problems) == 0) {
				t.Fatalf("%q: %v is no mistake of who typed it", a, err)
			}
		}
		if check(err); err != nil {
			return
		}
		if name, text, ok := strings.Cut(a, "="); ok && name == "path" {
			var o struct{ Path string }
			if err := json.Unmarshal(got, &o); err != nil || o.Path != text {
				t.Errorf("%q gave %s, %v", a, got, err)
			}
		}
		err = s.Validate(got)
		if check(err); err == nil {
			filled, err := s.Fill(got)
			if err != nil || !json.Valid(filled) {
				t.Fatalf("%q: %s is valid, and filled it is %s, %v", a, got, filled, err)
			}
			rest, secrets, err := s.Split(got)
			must.OK(t, err)
			for name, value := range secrets {
				if len(value) > 8 && bytes.Contains(rest, []byte(value)) {
					t.Errorf("secret %s is in %s", name, rest)
				}
			}
			whole, err := s.Merge(rest, secrets)
			if err != nil || s.Validate(whole) != nil {
				t.Errorf("%q: put together again it is %s, %v", a, whole, err)
			}
		}
		// A wrong secret is not shown.
		if len(secret) >= 3 && !strings.Contains(schema+"must be text, at least characters", secret) {
			for _, name := range []string{"token", "mail.password"} {
				value, merr := json.Marshal(map[string]any{"deep": secret})
				for _, assignment := range []string{name + "=" + secret, name + ":=" + string(value), name + ":=" + secret,
					name + ".x=" + secret} {
					got, err := s.Parse(nil, []string{assignment})
					if err == nil {
						err = s.Validate(got)
					}
					if merr == nil && err != nil && strings.Contains(err.Error(), secret) {
						t.Errorf("the secret %q is in %q", secret, err)
					}
				}
			}
		}
	})
}

// FuzzCompile: a schema that a plugin sends is refused or usable. With a usable schema, each error of a
// value is an *Error about the value.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{schema, `true`, `{}`, `{"$ref":"#"}`, `{"properties":{"a":{"$ref":"#"}}}`,
		`{"type":"array","items":{"format":"go-duration"}}`, `{"properties":{"a":{"default":[1]}}}`,
		`{"allOf":[{"not":{}}]}`, `{"properties":{"a":false}}`, `{"patternProperties":{"^a":{"type":"integer"}}}`, `{"additionalProperties":{"default":"7d","format":"go-duration"}}`} {
		for _, v := range []string{`{}`, `{"a":1}`, `null`, `[["7d"]]`, `{"a":{"a":{}}}`, `"7d"`, ``} {
			f.Add([]byte(s), []byte(v))
		}
	}
	f.Fuzz(func(t *testing.T, text, value []byte) {
		s, err := settings.Compile(text)
		if err != nil {
			return
		}
		s.Fields()
		err = s.Validate(value)
		var mistake *settings.Error
		if err != nil && !errors.As(err, &mistake) {
			t.Fatalf("%s of %s: %v", value, text, err)
		}
		if filled, ferr := s.Fill(value); err == nil && ferr == nil && !json.Valid(filled) {
			t.Errorf("%s, which is valid by %s, is filled up to %s", value, text, filled)
		}
	})
}

// FuzzDuration compares ParseDuration with the standard library for units that both have, and checks days and
// weeks.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"90s", "1h30m", "7d", "2w", "1.5d", "-1d", "+1w", ".5w", "1d1h", "106751d", "1e3s", "1µs",
		"0", "", "d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := settings.ParseDuration(s)
		want, wantErr := time.ParseDuration(s)
		// schemas do not take the Greek letter
		if wantErr == nil && (err != nil || got != want) && !strings.Contains(s, "μ") {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
		if hours, ok := strings.CutSuffix(s, "d"); ok && err == nil && !strings.ContainsAny(hours, "dwhmnuµ.+-s") {
			if days, e := settings.ParseDuration(hours + "h"); e != nil || got != 24*days {
				t.Errorf("%q is %v, a 24th %v, %v", s, got, days, e)
			}
		}
	})
}
