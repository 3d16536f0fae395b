package settings_test

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

const schema = `{
	"type": "object",
	"additionalProperties": false,
	"required": ["path"],
	"properties": {
		"path": {"type": "string", "minLength": 1, "description": "what to read"},
		"delimiter": {"type": "string", "enum": [",", ";", "tab"], "default": ","},
		"rows": {"type": "integer", "minimum": 1, "maximum": 10},
		"ratio": {"type": "number"},
		"header": {"type": "boolean", "default": true},
		"accept": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 100, "maximum": 599}, "default": [200]},
		"columns": {"type": ["array", "null"], "items": {"type": "string"}, "maxItems": 3},
		"every": {"type": ["string", "integer"], "format": "go-duration", "pattern": "^[+-]?(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|ms|s|m|h|d|w))+)$", "default": "30s"},
		"code": {"type": "string", "pattern": "^[A-Z]+$", "maxLength": 3},
		"token": {"type": "string", "writeOnly": true, "minLength": 4},
		"mail": {"type": "object", "additionalProperties": false, "properties": {
			"host": {"type": "string", "default": "localhost"},
			"port": {"type": "integer", "default": 25},
			"password": {"type": "string", "writeOnly": true}
		}},
		"labels": {"type": ["object", "null"], "additionalProperties": {"type": "integer", "maximum": 67108864}},
		"rest": {}
	}
}`

func compile(t testing.TB, schema string) *settings.Schema {
	t.Helper()
	s, err := settings.Compile([]byte(schema))
	must.OK(t, err)
	return s
}

func TestCompileRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":        `{`,
		"unknown type":    `{"properties":{"a":{"type":7}}}`,
		"bad pattern":     `{"properties":{"a":{"pattern":"("}}}`,
		"default misfits": `{"properties":{"a":{"type":"integer","default":"x"}}}`,
		"no duration":     `{"properties":{"a":{"format":"go-duration","default":"soon"}}}`,
	} {
		if _, err := settings.Compile([]byte(text)); err == nil {
			t.Error(name, "is accepted")
		}
	}
}

func TestParse(t *testing.T) {
	tests := []struct {
		base    string
		assign  []string
		want    string
		problem string
	}{
		{"", nil, `{}`, ""},
		{"", []string{"path=/a b"}, `{"path":"/a b"}`, ""},
		{"", []string{"path=17"}, `{"path":"17"}`, ""},
		{"", []string{"path=a=b"}, `{"path":"a=b"}`, ""},
		{"", []string{"path="}, `{"path":""}`, ""},
		{"", []string{"rows=3", "ratio=0.5", "header=false"}, `{"rows":3,"ratio":0.5,"header":false}`, ""},
		{"", []string{"rows=9007199254740993"}, `{"rows":9007199254740993}`, ""},
		{"", []string{"rows=+007"}, `{"rows":7}`, ""},
		{"", []string{"accept=200, 301"}, `{"accept":[200,301]}`, ""},
		{"", []string{"accept="}, `{"accept":[]}`, ""},
		{"", []string{"columns=a,b"}, `{"columns":["a","b"]}`, ""},
		{"", []string{`columns:=["a,b"]`}, `{"columns":["a,b"]}`, ""},
		{"", []string{"every=7d"}, `{"every":"7d"}`, ""},
		{"", []string{"mail.host=mx", "mail.port=587"}, `{"mail":{"host":"mx","port":587}}`, ""},
		{"", []string{"labels.a=1", "labels.b=2"}, `{"labels":{"a":1,"b":2}}`, ""},
		{"", []string{"rest=text", "rest.of.it=text"}, "", "rest.of.it: cannot be set"},
		{"", []string{`rest:={"x":[1,null]}`}, `{"rest":{"x":[1,null]}}`, ""},
		{`{"rows":1,"path":"p"}`, []string{"rows=2"}, `{"rows":2,"path":"p"}`, ""},
		{`{"mail":{"host":"a"}}`, []string{"mail.port=1"}, `{"mail":{"host":"a","port":1}}`, ""},
		{`{"mail":null}`, []string{"mail.port=1"}, `{"mail":{"port":1}}`, ""},

		{"", []string{"delimeter=;"}, "", "delimeter: there is no such field; did you mean delimiter?"},
		{"", []string{"mail.prot=1"}, "", "mail.prot: there is no such field; did you mean mail.port?"},
		{"", []string{"zzz=1"}, "", "zzz: there is no such field; there are accept, code, columns"},
		{"", []string{"rows=many"}, "", `rows: must be a whole number, not "many"`},
		{"", []string{"rows=0x10"}, "", `rows: must be a whole number`},
		{"", []string{"ratio=NaN"}, "", `ratio: must be a number, not "NaN"`},
		{"", []string{"ratio=null"}, "", `ratio: must be a number, not "null"`},
		{"", []string{"header=yes"}, "", `header: must be true or false, not "yes"`},
		{"", []string{"accept=200,x"}, "", `accept: must be a whole number, not "x"`},
		{"", []string{"mail=x"}, "", "mail: has fields of its own: give them as mail.FIELD=…, or all of it as mail:=JSON"},
		{"", []string{"rows:=[1"}, "", "rows: what follows := must be JSON"},
		{"", []string{"rows"}, "", `"rows" is not name=value`},
		{"", []string{"=x"}, "", `"=x" is not name=value`},
		{"", []string{":=x"}, "", `":=x" is not name=value`},
		{`[1]`, []string{"rows=1"}, "", "rows: cannot be set: not a JSON object"},
	}
	s := compile(t, schema)
	for _, test := range tests {
		got, err := s.Parse([]byte(test.base), test.assign)
		if test.problem != "" {
			var e *settings.Error
			if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), test.problem) {
				t.Errorf("%q: %v, want %s", test.assign, err, test.problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.assign, err)
			continue
		}
		if diff := cmp.Diff(decode(t, test.want), decode(t, string(got))); diff != "" {
			t.Errorf("%q: %s", test.assign, diff)
		}
	}
	_, err := compile(t, `{"additionalProperties":{"not":{"type":"string"}}}`).Parse(nil, []string{"n:=1"})
	must.OK(t, err) // "not" alone does not refuse all fields
}

// decode decodes JSON and keeps the text of numbers: large ones would be equal as float64.
func decode(t testing.TB, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestUnknownField(t *testing.T) {
	_, err := compile(t, schema).Parse(nil, []string{"delimeter=;"})
	var e *settings.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := settings.Problem{
		Field: "delimeter", Message: "there is no such field", Hint: "did you mean delimiter?", Unknown: true,
		Suggestion: "delimiter",
	}
	if diff := cmp.Diff([]settings.Problem{want}, e.Problems); diff != "" {
		t.Error(diff)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct{ value, problems string }{
		{`{"path":"a"}`, ""},
		{`{"path":"a","every":"1h30m","rest":[{}],"columns":null,"labels":{"x":1}}`, ""},
		{`{"path":"a","every":30000000000}`, ""},
		{``, "path: is required"},
		{`{`, "not JSON: unexpected end of JSON input"},
		{`[]`, "must be an object, not a list"},
		{`null`, "must be an object, not null"},
		{`{"path":""}`, "path: must not be empty"},
		{`{"path":7}`, "path: must be text, not the number 7"},
		{`{"path":"a","delimiter":"|"}`, `delimiter: must be one of ,, ;, tab, not "|"`},
		{`{"path":"a","rows":0}`, "rows: must be at least 1, not 0"},
		{`{"path":"a","rows":11}`, "rows: must be at most 10, not 11"},
		{`{"path":"a","rows":1.5}`, "rows: must be a whole number, not the number 1.5"},
		{`{"path":"a","header":"true"}`, "header: must be true or false, not text"},
		{`{"path":"a","accept":[200,20]}`, "accept[1]: must be at least 100, not 20"},
		{`{"path":"a","accept":{}}`, "accept: must be a list, not an object"},
		{`{"path":"a","columns":["a","b","c","d"]}`, "columns: must have at most 3 entries, has 4"},
		{`{"path":"a","every":"soon"}`, `every: must be a duration such as 30s, 5m or 7d, not "soon"`},
		{`{"path":"a","code":"abc"}`, `code: must match ^[A-Z]+$, not "abc"`},
		{`{"path":"a","code":"ABCD"}`, "code: must have at most 3 characters, has 4"},
		{`{"path":"a","token":"abc"}`, "token: must have at least 4 characters"},
		{`{"path":"a","token":true}`, "token: must be text, not true"},
		{`{"path":"a","mail":{"port":"x","hots":1}}`, "mail.hots: there is no such field; did you mean mail.host?; " +
			"mail.port: must be a whole number, not text"},
		{`{"path":"a","labels":{"x":67108865}}`, "labels.x: must be at most 67108864, not 67108865"},
		{`{"path":"a","labels":{"x":"y"}}`, "labels.x: must be a whole number, not text"},
		{`{"rows":0,"colums":1}`, "path: is required; colums: there is no such field; did you mean columns?; rows: must " +
			"be at least 1, not 0"},
	}
	s := compile(t, schema)
	for _, test := range tests {
		err := s.Validate([]byte(test.value))
		if test.problems == "" {
			if err != nil {
				t.Errorf("%s: %v", test.value, err)
			}
			continue
		}
		var e *settings.Error
		if !errors.As(err, &e) || err.Error() != test.problems {
			t.Errorf("%s:\n got %v\nwant %s", test.value, err, test.problems)
		}
	}
}

// A schema that package sdk did not make may have keywords that are not explained. They are checked all the same.
func TestValidateForeignRule(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"n":{"multipleOf":3}}}`)
	must.OK(t, s.Validate([]byte(`{"n":3}`)))
	if err := s.Validate([]byte(`{"n":4}`)); err == nil || err.Error() != "does not fit the schema" {
		t.Error(err)
	}
}

// A wrong secret's value is not in the message.
func TestSecretsAreNotShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const mark = "S3CRET"
		rule := rapid.SampledFrom([]string{
			`"minLength":99`, `"maxLength":2`, `"pattern":"^x$"`, `"enum":["a"]`, `"type":"integer"`,
			`"multipleOf":2,"type":"number"`,
		}).Draw(t, "rule")
		if !strings.Contains(rule, "type") {
			rule += `,"type":"string"`
		}
		s, err := settings.Compile([]byte(`{"properties":{"s":{"writeOnly":true,` + rule + `}}}`))
		must.OK(t, err)
		if err := s.Validate([]byte(`{"s":"` + mark + `"}`)); err == nil || strings.Contains(err.Error(), mark) {
			t.Fatal(err)
		}
		if _, err := s.Parse(nil, []string{"s=" + mark}); err != nil && strings.Contains(err.Error(), mark) {
			t.Fatal(err)
		}
	})
}

func TestFill(t *testing.T) {
	tests := []struct{ value, want string }{
		{``, `{"delimiter":",","header":true,"accept":[200],"every":30000000000,"mail":{"host":"localhost","port":25}}`},
		{`{"header":false,"accept":null,"every":"1.5s","mail":{"port":7}}`,
			`{"delimiter":",","header":false,"accept":null,"every":1500000000,"mail":{"host":"localhost","port":7}}`},
		{`{"delimiter":";","header":true,"accept":[],"every":"-1d12h","mail":{"host":"","port":0},"rest":9007199254740993}`,
			`{"delimiter":";","header":true,"accept":[],"every":-129600000000000,"mail":{"host":"","port":0},"rest":9007199254740993}`},
		{" {\n\"\\u0065very\" : \"1s\" , \"rest\":[ 1 , \"<,}\\\"\" ],\"mail\":null,\"accept\" : [ ] } ",
			`{"delimiter":",","header":true,"accept":[],"every":1000000000,"mail":null,"rest":[1,"<,}\""]}`},
	}
	s := compile(t, schema)
	for _, test := range tests {
		got, err := s.Fill([]byte(test.value))
		if err != nil {
			t.Errorf("%s: %v", test.value, err)
			continue
		}
		if diff := cmp.Diff(decode(t, test.want), decode(t, string(got))); diff != "" {
			t.Errorf("%s: %s", test.value, diff)
		}
	}
	union := compile(t, `{"properties":{"keep":{"type":["integer","string"],"default":"never"},
		"n":{"type":["string","integer"]}}}`)
	for value, want := range map[string]string{
		`{}`: `{"keep":"never"}`, `{"keep":"a.b","n":"one"}`: `{"keep":"a.b","n":"one"}`,
		`{"keep":9007199254740993.0,"n":-18014398509481985e0}`: `{"keep":9007199254740993,"n":-18014398509481985}`,
		`{"keep":1e18,"n":1e400}`:                              `{"keep":1000000000000000000,"n":1e400}`,
	} {
		if got, err := union.Fill([]byte(value)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", value, got, err, want)
		}
	}
	text := compile(t, `{"properties":{"wait":{"type":"string","format":"go-duration","default":"30s"}}}`)
	if got, err := text.Fill([]byte("{}")); err != nil || string(got) != `{"wait":"30s"}` { // as other languages have it
		t.Errorf("a duration that is a text: %s %v", got, err)
	}
	lists := compile(t,
		`{"properties":{"waits":{"items":{"format":"go-duration"}},"by":{"additionalProperties":{"properties":{"n":{"default":1}}}}}}`)
	got, err := lists.Fill([]byte(`{"waits":["1s","2m"],"by":{"a":{},"b":{"n":2}}}`))
	must.OK(t, err)
	if diff := cmp.Diff(decode(t, `{"waits":[1000000000,120000000000],"by":{"a":{"n":1},"b":{"n":2}}}`),
		decode(t, string(got))); diff != "" {
		t.Error(diff)
	}
}

func TestMarshal(t *testing.T) {
	type mail struct {
		Host string `json:"host"`
		Port int    `json:"port"`
	}
	type config struct {
		Path      string `json:"path"`
		Delimiter string `json:"delimiter"`
		Rows      int    `json:"rows"`
		Mail      mail   `json:"mail"`
	}
	type choice struct {
		On *bool `json:"on"`
	}
	s := compile(t, schema)
	nullable := compile(t, `{"properties":{"on":{"type":["boolean","null"],"default":true}}}`)
	tests := []struct {
		value any
		want  string
	}{
		{nil, `{}`},
		{choice{On: new(false)}, `{"on":false}`},
		{choice{}, `{}`},
		{config{Rows: 3, Mail: mail{Port: 1}}, `{"path":"","rows":3,"mail":{"port":1}}`},
		{&config{Path: "a"}, `{"path":"a"}`},
		{map[string]any{"rows": 0}, `{"rows":0}`},
		{json.RawMessage(`{"delimiter":""}`), `{"delimiter":""}`},
	}
	for _, test := range tests {
		of := s
		if _, is := test.value.(choice); is {
			of = nullable
		}
		got, err := of.Marshal(test.value)
		if err != nil {
			t.Errorf("%v: %v", test.value, err)
			continue
		}
		if diff := cmp.Diff(decode(t, test.want), decode(t, string(got))); diff != "" {
			t.Errorf("%v: %s", test.value, diff)
		}
	}
}

func TestSecrets(t *testing.T) {
	s := compile(t, schema)
	if diff := cmp.Diff([]string{"token", "mail.password"}, s.Secrets()); diff != "" {
		t.Fatal(diff)
	}
	whole := `{"path":"a","token":"t0k3n","mail":{"host":"mx","password":"pw"}}`
	rest, secrets, err := s.Split([]byte(whole))
	must.OK(t, err)
	if diff := cmp.Diff(map[string]string{"token": "t0k3n", "mail.password": "pw"}, secrets); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(decode(t, `{"path":"a","mail":{"host":"mx"}}`), decode(t, string(rest))); diff != "" {
		t.Error(diff)
	}
	merged, err := s.Merge(rest, secrets)
	must.OK(t, err)
	if diff := cmp.Diff(decode(t, whole), decode(t, string(merged))); diff != "" {
		t.Error(diff)
	}
	if rest, secrets, err = s.Split([]byte(`{"path":"a"}`)); err != nil || len(secrets) > 0 ||
		string(rest) != `{"path":"a"}` {
		t.Error(string(rest), secrets, err)
	}
	if _, _, err := s.Split([]byte(`{"token":7}`)); err == nil {
		t.Error("a number was accepted")
	}
	if merged, err = s.Merge(nil, map[string]string{"mail.password": "pw"}); err != nil ||
		string(merged) != `{"mail":{"password":"pw"}}` {
		t.Error(string(merged), err)
	}
	if _, err := s.Merge(nil, map[string]string{"path": "x"}); err == nil {
		t.Error("what is no secret was accepted")
	}
}

func TestFields(t *testing.T) {
	want := []settings.Field{
		{Name: "path", Type: "text", Doc: "what to read", Required: true},
		{Name: "delimiter", Type: "text", Default: ",", Enum: []string{",", ";", "tab"}},
		{Name: "rows", Type: "a whole number"},
		{Name: "ratio", Type: "a number"},
		{Name: "header", Type: "true or false", Default: "true"},
		{Name: "accept", Type: "a list", Default: "200"},
		{Name: "columns", Type: "a list"},
		{Name: "every", Type: "a duration", Default: "30s"},
		{Name: "code", Type: "text"},
		{Name: "token", Type: "text", Secret: true},
		{Name: "mail.host", Type: "text", Default: "localhost"},
		{Name: "mail.port", Type: "a whole number", Default: "25"},
		{Name: "mail.password", Type: "text", Secret: true},
		{Name: "labels", Type: "an object"},
		{Name: "rest", Type: "anything"},
	}
	if diff := cmp.Diff(want, compile(t, schema).Fields()); diff != "" {
		t.Error(diff)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "30s": 30 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "1.5d": 36 * time.Hour,
		"2w1d": 15 * 24 * time.Hour, "-1m": -time.Minute, ".5s": 500 * time.Millisecond, "10us": 10 * time.Microsecond,
		"0.7d": 16*time.Hour + 48*time.Minute, "-1w.7d2h": -(186*time.Hour + 48*time.Minute),
		"15250w": 15250 * 168 * time.Hour,
	} {
		if got, err := settings.ParseDuration(text); got != want || err != nil {
			t.Errorf("%s: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "7", "7 d", "1y", "d", "1d2", "99999999w", "15251w", "1e3s", "00", "1h0"} {
		if got, err := settings.ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
	form := regexp.MustCompile(settings.DurationPattern)
	for text, want := range map[string]bool{"0": true, "-0": true, "00h": true, "00": false, "1h0": false} {
		if form.MatchString(text) != want {
			t.Errorf("the pattern for %q: %v", text, !want)
		}
	}
}

// A duration that time.ParseDuration accepts means the same here.
func TestParseDurationLikeTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(-math.MaxInt64, math.MaxInt64).Draw(t, "d"))
		if got, err := settings.ParseDuration(d.String()); got != d || err != nil {
			t.Fatalf("%v: %v %v", d, got, err)
		}
	})
}

func TestSuggest(t *testing.T) {
	known := []string{"delimiter", "encoding", "header", "max_bad_rows", "n"}
	for word, want := range map[string]string{
		"delimeter": "delimiter", "Encodng": "encoding", "head": "header", "max": "max_bad_rows", "edlimiter": "delimiter",
		"m": "", "xyz": "", "": "",
	} {
		if got := settings.Suggest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// The result of Parse for typed text is valid, for every value of a simple type.
func TestParseRound(t *testing.T) {
	s, err := settings.Compile(
		[]byte(
			`{"additionalProperties":false,"properties":{"s":{"type":"string"},"n":{"type":"integer"},"f":{"type":"number"},"l":{"type":"array","items":{"type":"number"}}}}`))
	must.OK(t, err)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"s", "n", "f", "l"}).Draw(t, "name")
		text := rapid.String().Draw(t, "text")
		if rapid.Bool().Draw(t, "number") {
			raw, err := json.Marshal(rapid.Float64().Draw(t, "f"))
			must.OK(t, err)
			text = string(raw)
		}
		got, err := s.Parse(nil, []string{name + "=" + text})
		if err != nil {
			return
		}
		if err := s.Validate(got); err != nil {
			t.Fatalf("%s=%q gives %s: %v", name, text, got, err)
		}
	})
}

// Tuning fields, also below a tuning object, are not compared. The settings in force have their
// defaults, durations as people write them, and no secret.
func TestAgreedAndInForce(t *testing.T) {
	s := compile(t, `{"type": "object", "additionalProperties": false, "properties": {
		"command": {"type": "string"},
		"per_host": {"type": "integer", "default": 2, "x-ledgerd-tune": true},
		"wait": {"type": ["string", "integer"], "format": "go-duration", "default": "1m", "x-ledgerd-tune": true},
		"token": {"type": "string", "writeOnly": true},
		"mail": {"type": "object", "properties": {"host": {"type": "string", "default": "localhost"},
			"limits": {"type": "object", "x-ledgerd-tune": true, "properties": {"size": {"type": "integer", "default": 5}}}}}}}`)
	var tune []string
	for _, f := range s.Fields() {
		if f.Tune {
			tune = append(tune, f.Name)
		}
	}
	if diff := cmp.Diff([]string{"per_host", "wait", "mail.limits.size"}, tune); diff != "" {
		t.Error(diff)
	}
	given := []byte(`{"command":"a","per_host":9,"wait":"90m","token":"hush","mail":{"host":"h","limits":{"size":7}}}`)
	agreed, err := s.Agreed(given)
	if want := `{"command":"a","mail":{"host":"h","limits":{}},"token":"hush"}`; err != nil || string(agreed) != want {
		t.Errorf("%s, %v, want %s", agreed, err, want)
	}
	for config, want := range map[string]string{
		string(given): `{"command":"a","mail":{"host":"h","limits":{"size":7}},"per_host":9,"wait":"1h30m"}`,
		"":            `{"mail":{"host":"localhost","limits":{"size":5}},"per_host":2,"wait":"1m"}`,
	} {
		if got, err := s.InForce([]byte(config)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", config, got, err, want)
		}
	}
}

// A duration that is too long has the form of one, and is refused where it is given.
func TestLongDuration(t *testing.T) {
	s, err := settings.Compile([]byte(schema))
	must.OK(t, err)
	err = s.Validate([]byte(`{"path":"/a","every":"15251w"}`))
	if e := (*settings.Error)(nil); !errors.As(err, &e) || e.Problems[0].Field != "every" ||
		!strings.Contains(err.Error(), "is too long") {
		t.Error(err)
	}
	must.OK(t, s.Validate([]byte(`{"path":"/a","every":"15250w"}`)))
}
