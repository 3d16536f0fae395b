package payload_test

import (
	"encoding/json"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/payload"
)

// Objects are remembered by their fields, so one of them is not there twice.
func TestDefaultsOfObjects(t *testing.T) {
	for want, commands := range map[string][]map[string]string{
		`[types.a="int" types.b="date"]`:         {{"types": `{"a":"int","b":"date"}`}},
		`[types.a="int" types.c="date"]`:         {{"types": `{"a":"int"}`}, {"types.c": `"date"`}},
		`[types.a="date" (varied)]`:              {{"types": `{"a":"int"}`}, {"types.a": `"date"`}},
		`[types.a="int" (varied) types.b="int"]`: {{"types.a": `"int"`}, {"types": `{"b":"int"}`}},
		`[types.a="int" (varied) types2="int"]`:  {{"types.a": `"int"`, "types2": `"int"`}, {"types": `{}`}},
		`[types.a="int"]`:                        {{"types": `{}`}, {"types.a": `"int"`}},
		`[types={"a.b":"int"}]`:                  {{"types": `{"a.b":"int"}`}},
		`[deep.a.b=1 deep.a.c=[1] deep.d=null]`:  {{"deep": `{"a":{"b":1,"c":[1]},"d":null}`}},
		`[types.a="int" types.b="date" types.c="bool"]`: {{"types": `{"a":"int"}`, "types.b": `"date"`},
			{"types.c": `"bool"`}},
	} {
		var d payload.Defaults
		for _, command := range commands {
			given := map[string]json.RawMessage{}
			for name, value := range command {
				given[name] = json.RawMessage(value)
			}
			d = d.Remember(given)
		}
		if got := d.String(); got != want {
			t.Errorf("%v: %s, want %s", commands, got, want)
		}
	}
}

// A ledger may have an object beside one of its fields; the field counts, as in the payload.
func TestDefaultsFlat(t *testing.T) {
	d := payload.Defaults{
		"types":   {Value: json.RawMessage(`{"a":"int","b":"date"}`), Kept: true},
		"types.a": {Value: json.RawMessage(`"decimal"`)},
		"into":    {Value: json.RawMessage(`{}`)},
		"into.x":  {Value: json.RawMessage(`"y"`), Varied: true},
	}
	want := `[into.x="y" (varied) types.a="decimal" types.b="date" (kept)]`
	if got := d.Flat().String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := payload.Defaults(nil).Flat(); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}
