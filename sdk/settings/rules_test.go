package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestRulesAgree: a rule and the full validator accept the same values. A rule may refuse an object in which a name
// stands twice: the validator sees only the last of the two.
func TestRulesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(drawSchema(t, 3))
		must.OK(t, err)
		s, err := Compile(text)
		if err != nil || !s.ruled {
			t.Fatalf("%s has no rule: %v", text, err)
		}
		for range 5 {
			w := writer{t: t}
			w.value(s.root, 3)
			value := w.text.String()
			if !json.Valid([]byte(value)) {
				t.Fatalf("%s is no JSON", value)
			}
			if got, want := judged(s, value); got != want && (got || !w.twice) {
				t.Fatalf("schema %s, value %s: the rule reports %t, the validator %t", text, value, got, want)
			}
		}
	})
}

// judged is whether a value fits, by the rule and by the full validator.
func judged(s *Schema, value string) (rule, validator bool) {
	var v any
	return s.rule.fits([]byte(value)), json.Unmarshal([]byte(value), &v) == nil && s.resolved.Validate(v) == nil
}

// TestRulesAgreeOnOddText: text that is no UTF-8, and numbers that are too large.
func TestRulesAgreeOnOddText(t *testing.T) {
	for schema, values := range map[string][]string{
		`{}`:                            {`1e999`, `[{"a":1e999}]`, `{"a":[-1e999]}`, "\"\xff\""},
		`{"maxLength":1,"minLength":1}`: {"\"\xff\"", "\"\xff\xff\"", `"\ud800"`, `"\ud83d\ude00"`},
		`{"pattern":"^\ufffd$"}`:        {"\"\xff\"", `"\ud800"`},
		`{"properties":{"\ufffd":{"type":"null"}}}`: {"{\"\xff\":1}", "{\"\xff\":null}"},
	} {
		s, err := Compile([]byte(schema))
		if err != nil || !s.ruled {
			t.Fatal(schema, err)
		}
		for _, value := range values {
			if got, want := judged(s, value); got != want {
				t.Errorf("schema %s, value %q: the rule reports %t, the validator %t", schema, value, got, want)
			}
		}
	}
}

// TestNoRule: a schema has no rule if it has a keyword that rules do not know, at any depth.
func TestNoRule(t *testing.T) {
	for _, s := range []string{`{"multipleOf":2}`, `{"const":1}`, `{"uniqueItems":true}`, `{"anyOf":[{"type":"null"}]}`,
		`{"not":{"type":"null"}}`, `{"minProperties":1}`, `{"exclusiveMinimum":1}`, `{"patternProperties":{"^a":{}}}`,
		`{"properties":{"x":false}}`, `{"required":["x"]}`, `{"prefixItems":[{}]}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#"}`} {
		for _, around := range []string{`%s`, `{"items":%s}`, `{"additionalProperties":%s}`, `{"properties":{"a":{"items":%s}}}`} {
			text := fmt.Sprintf(around, s)
			if got, err := Compile([]byte(text)); err == nil && got.ruled {
				t.Errorf("%s has a rule", text)
			}
		}
	}
}

var (
	names   = []string{"a", "b", "é", `q"`}
	numbers = []string{"0", "-0", "1", "1.0", "1e0", "0.5", "2", "-3E+1", "12345678901234567890", "1e999"}
	words   = []string{"", "a", "b", "aé", `\`, "\U0001F600"}
)

// drawSchema makes a schema of the keywords that a rule knows.
func drawSchema(t *rapid.T, depth int) any {
	s := map[string]any{}
	may := func(keyword string, value any) {
		if rapid.IntRange(0, 3).Draw(t, keyword) == 3 {
			s[keyword] = value
		}
	}
	kinds := slices.Sorted(maps.Keys(typeNames))
	switch rapid.IntRange(0, 3).Draw(t, "types") {
	case 2:
	case 3:
		s["type"] = rapid.SliceOfNDistinct(rapid.SampledFrom(kinds), 1, 3, rapid.ID).Draw(t, "type")
	default:
		s["type"] = rapid.SampledFrom(kinds).Draw(t, "type")
	}
	may("minimum", 0.5)
	may("maximum", 1)
	may("minLength", 1)
	may("maxLength", 1)
	may("pattern", "^[aé]")
	may("minItems", 1)
	may("maxItems", 1)
	if depth == 0 {
		may("enum", []any{nil, true, 1, "a", "aé"})
		return s
	}
	may("items", drawSchema(t, depth-1))
	fields := map[string]any{}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "fields") {
		fields[name] = drawSchema(t, depth-1)
	}
	if len(fields) > 0 {
		s["properties"] = fields
		may("required", slices.Sorted(maps.Keys(fields)))
	}
	may("additionalProperties", rapid.SampledFrom([]any{false, true, drawSchema(t, 0)}).Draw(t, "others"))
	return s
}

// writer writes a value, mostly of a type that the schema names, in one of the ways in which JSON can be written.
type writer struct {
	t     *rapid.T
	text  strings.Builder
	twice bool // a name stands twice in an object
}

func (w *writer) space() {
	w.text.WriteString(rapid.SampledFrom([]string{"", "", " ", "\n\t\r"}).Draw(w.t, "space"))
}

func (w *writer) quoted(s string) {
	if rapid.IntRange(0, 3).Draw(w.t, "escaped") == 3 {
		w.text.WriteByte('"')
		for _, r := range s {
			if r < 0x10000 {
				fmt.Fprintf(&w.text, `\u%04x`, r)
			} else {
				w.text.WriteRune(r)
			}
		}
		w.text.WriteByte('"')
		return
	}
	raw, _ := json.Marshal(s) // a string always can
	w.text.Write(raw)
}

func (w *writer) value(s *jsonschema.Schema, depth int) {
	kinds := typesOf(s)
	if len(kinds) == 0 || rapid.IntRange(0, 4).Draw(w.t, "stray") == 4 {
		kinds = slices.Sorted(maps.Keys(typeNames))
	}
	if s == nil {
		s = &jsonschema.Schema{}
	}
	switch rapid.SampledFrom(kinds).Draw(w.t, "kind") {
	case "null":
		w.text.WriteString("null")
	case "boolean":
		fmt.Fprint(&w.text, rapid.Bool().Draw(w.t, "bool"))
	case "integer", "number":
		w.text.WriteString(rapid.SampledFrom(numbers).Draw(w.t, "number"))
	case "string":
		w.quoted(rapid.SampledFrom(words).Draw(w.t, "text"))
	case "array":
		w.list("[", rapid.IntRange(0, min(depth, 2)).Draw(w.t, "items"), "]", func(int) { w.value(s.Items, depth-1) })
	case "object":
		fields := rapid.SliceOfN(rapid.SampledFrom(names), 0, 2*depth).Draw(w.t, "names")
		w.list("{", len(fields), "}", func(i int) {
			w.twice = w.twice || slices.Contains(fields[:i], fields[i])
			w.quoted(fields[i])
			w.space()
			w.text.WriteByte(':')
			w.space()
			field := cmp.Or(s.Properties[fields[i]], s.AdditionalProperties)
			w.value(field, depth-1)
		})
	}
}

func (w *writer) list(begin string, n int, end string, each func(i int)) {
	w.text.WriteString(begin)
	for i := range n {
		if i > 0 {
			w.text.WriteByte(',')
		}
		w.space()
		each(i)
		w.space()
	}
	w.text.WriteString(end)
}
