package payload

import "testing"

func TestOver(t *testing.T) {
	for _, c := range []struct{ payload, other, field, want string }{
		{`{"a":1}`, `{"b":2}`, "b", `{"a":1,"b":2}`},
		{`{"types":{"b":"int"}}`, `{"types":{"a":"int"}}`, "types.a", `{"types":{"a":"int","b":"int"}}`},
		{`{}`, `{"types":{"a":"int"}}`, "types.a", `{"types":{"a":"int"}}`},
		{`{"types":"x"}`, `{"types":{"a":"int","b":"int"}}`, "types.a", `{"types":{"a":"int"}}`},
		{`{"types":null}`, `{"types":{"a":"int"}}`, "types.a", `{"types":{"a":"int"}}`},
		{`{"types":"x"}`, `{"types":"y"}`, "types.a", `{"types":"x"}`},
	} {
		if got := string(Over([]byte(c.payload), []byte(c.other), []string{c.field})); got != c.want {
			t.Errorf("%s with %s of %s: %s, want %s", c.payload, c.field, c.other, got, c.want)
		}
	}
}
