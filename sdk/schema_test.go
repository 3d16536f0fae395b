package sdk

import (
	"context"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

type inner struct {
	Host string `json:"host" default:"localhost" doc:"name of the server"`
	Port int    `json:"port" default:"25"`
}

type embedded struct {
	Deep string `json:"deep" default:"down"`
}

type everything struct {
	embedded
	Path     string            `json:"path" input:"file" doc:"what to read"`
	Sep      string            `json:"sep" default:"," schema:"maxLength=1"`
	Mode     string            `json:"mode" schema:"enum=fast|slow" default:"fast"`
	Rows     int               `json:"rows,omitempty" schema:"min=1,max=10" default:"3"`
	Small    int8              `json:"small"`
	Ratio    float64           `json:"ratio"`
	On       bool              `json:"on" default:"true"`
	Wait     time.Duration     `json:"wait" default:"1d"`
	Waits    []time.Duration   `json:"waits"`
	At       time.Time         `json:"at"`
	Accept   []int             `json:"accept" default:"[200]" schema:"min=100,max=599,minItems=1"`
	Labels   map[string]string `json:"labels"`
	Maybe    *int              `json:"maybe"`
	Raw      json.RawMessage   `json:"raw"`
	Any      any               `json:"any"`
	Bytes    []byte            `json:"bytes"`
	Addr     netip.Addr        `json:"addr"`
	Mail     inner             `json:"mail"`
	Code     string            `json:"code" schema:"required,pattern=^[a-z]{1,3}$"`
	Pair     [2]int            `json:"pair,omitempty"`
	Untagged chan int
	Dashed   string `json:"-"`
	//lint:ignore U1000 an unexported field is no setting
	hidden string
}

func TestDecode(t *testing.T) {
	s, err := shapeOf(reflect.TypeFor[everything](), rolePayload)
	must.OK(t, err)
	three := 3
	at := time.Date(2026, 11, 20, 1, 2, 3, 0, time.UTC)
	tests := []struct {
		raw  string
		want everything // or
		err  string
	}{
		{
			`{"path":"/a","code":"x"}`,
			everything{
				embedded: embedded{"down"}, Path: "/a", Sep: ",", Mode: "fast", Rows: 3, On: true, Wait: 24 * time.Hour,
				Accept: []int{200}, Mail: inner{"localhost", 25}, Code: "x",
			}, "",
		},
		{
			`{"path":"/a","code":"x","deep":"er","mode":"slow","rows":9,"small":-128,"ratio":0.5,"on":false,"wait":"90s","waits":["1s",2],
			  "at":"2026-11-20T01:02:03Z","accept":[301,404],"labels":{"a":"b"},"maybe":3,"raw":{"x":[1]},"any":[true],"bytes":"aGk=",
			  "addr":"::1","mail":{"port":26},"pair":[1,2]}`,
			everything{
				embedded: embedded{"er"}, Path: "/a", Sep: ",", Mode: "slow", Rows: 9, Small: -128, Ratio: 0.5,
				Wait:  90 * time.Second,
				Waits: []time.Duration{time.Second, 2}, At: at, Accept: []int{301, 404}, Labels: map[string]string{
					"a": "b"}, Maybe: &three,
				Raw: json.RawMessage(`{"x":[1]}`), Any: []any{true}, Bytes: []byte("hi"), Addr: netip.IPv6Loopback(),
				Mail: inner{"localhost", 26}, Code: "x", Pair: [2]int{1, 2},
			}, "",
		},
		{
			`{"path":"/a","code":"x","rows":1e1,"small":-5.0,"accept":[2.00E2,301],"maybe":3.0,"wait":1e9}`,
			everything{
				embedded: embedded{"down"}, Path: "/a", Sep: ",", Mode: "fast", Rows: 10, Small: -5, On: true,
				Wait: time.Second, Accept: []int{200, 301}, Maybe: &three, Mail: inner{"localhost", 25}, Code: "x",
			}, "",
		},
		{`{"path":"/a","code":"x","rows":1.5}`, everything{}, "rows: must be a whole number"},
		{`{"path":"/a","code":"x","wait":"15251w"}`, everything{}, `wait: "15251w" is too long`},
		{`{"path":"/a","code":"x","waits":["1s","99999999999999s"]}`, everything{}, `waits[]: "99999999999999s" is too long`},
		{`{"path":"/a"}`, everything{}, "code: is required"},
		{`{"code":"x"}`, everything{}, "path: is required"},
		{`{"path":"","code":"x"}`, everything{}, "path: must not be empty"},
		{`{"path":"/a","code":"x","Untagged":1}`, everything{}, "Untagged: there is no such field"},
		{`{"path":"/a","code":"x","Dashed":"a"}`, everything{}, "Dashed: there is no such field"},
		{`{"PATH":"/a","path":"/b","code":"x"}`, everything{}, "PATH: there is no such field; did you mean path?"},
		{`{"path":"/a","code":"x","small":200}`, everything{}, "small: must be at most 127, not 200"},
		{`{"path":"/a","code":"x","accept":[]}`, everything{}, "accept: must have at least 1 entries, has 0"},
		{`{"path":"/a","code":"x","accept":[99]}`, everything{}, "accept[0]: must be at least 100, not 99"},
		{`{"path":"/a","code":"x","pair":[1]}`, everything{}, "pair: must have at least 2 entries, has 1"},
		{`{"path":"/a","code":"x,y"}`, everything{}, "code: must match"},
		{`{"path":"/a","code":"x","mail":{"prot":1}}`, everything{}, "mail.prot: there is no such field; did you mean " +
			"mail.port?"},
		{`{"path":"/a","code":"x","at":"yesterday"}`, everything{}, "parsing time"},
	}
	for _, test := range tests {
		var got everything
		err := s.decode([]byte(test.raw), &got)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v, want %s", test.raw, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.raw, err)
		} else if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b netip.Addr) bool {
			return a == b
		}), cmp.AllowUnexported(everything{})); diff != "" {
			t.Errorf("%s: %s", test.raw, diff)
		}
	}
	if s.input.Field != "path" || s.input.Type != "file" {
		t.Error(s.input)
	}
}

// The fields of embedded structs are settings where encoding/json fills them, and nowhere else.
func TestEmbedded(t *testing.T) {
	type Left struct {
		Deep string `json:"deep"`
	}
	type out struct {
		Left `json:"-"`
		Own  string `json:"own"`
	}
	type Other struct {
		Renamed int `json:"deep" schema:"required"`
	}
	type shallow struct {
		Other
		Deep string `json:"deep"`
	}
	type Named struct {
		Left `json:"in"`
	}
	for _, tt := range []struct {
		of   reflect.Type
		want []string
	}{
		{reflect.TypeFor[Named](), []string{"in.deep text"}},
		{reflect.TypeFor[out](), []string{"own text"}},
		{reflect.TypeFor[shallow](), []string{"deep text"}},
	} {
		s, err := shapeOf(tt.of, roleConfig)
		must.OK(t, err)
		var got []string
		for _, f := range s.schema.Fields() {
			got = append(got, f.Name+" "+f.Type)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: %s", tt.of, diff)
		}
		if err := s.schema.Validate(nil); err != nil {
			t.Errorf("%v: %v", tt.of, err)
		}
	}
}

// TestPayloadsAreCheckedByRules: the check of a payload that fits allocates no memory. The full validator allocates
// much, so it was not used.
func TestPayloadsAreCheckedByRules(t *testing.T) {
	type payload struct {
		Path string        `json:"path" input:"file"`
		Mode string        `json:"mode" default:"fast" schema:"maxLength=9,pattern=^[a-z]+$"`
		Rows *int          `json:"rows" schema:"min=1,max=9"`
		Wait time.Duration `json:"wait" default:"1m"`
		At   time.Time     `json:"at"`
		Raw  []byte        `json:"raw"`
		Mail struct {
			To string `json:"to"`
		} `json:"mail"`
		Tags map[string][]bool `json:"tags" doc:"what it is about"`
		Rate [2]float64        `json:"rate"`
	}
	s, err := shapeOf(reflect.TypeFor[payload](), rolePayload)
	must.OK(t, err)
	raw := []byte(`{"path":"/a","mode":"slow","rows":3,"wait":"90s","at":"2026-11-20T01:02:03Z","raw":"eA==","mail":{"to":"x"},
		"tags":{"a":[true],"b":null},"rate":[0.5,2]}`)
	checked := testing.AllocsPerRun(100, func() {
		must.OK(t, s.schema.Validate(raw))
	})
	if checked > 3 { // the race detector makes pools forget
		t.Errorf("%v allocations", checked)
	}
}

// A config that a Go program has marshalled from the same type decodes to the same value.
func TestDecodeOwnMarshal(t *testing.T) {
	type config struct {
		Wait time.Duration `json:"wait" default:"7d"`
		Mail *inner        `json:"mail"`
		List []string      `json:"list"`
	}
	s, err := shapeOf(reflect.TypeFor[config](), roleConfig)
	must.OK(t, err)
	for _, want := range []config{{Wait: 30 * time.Second}, {}, {Wait: 1, Mail: &inner{"a", 1}, List: []string{"x"}}} {
		raw, err := json.Marshal(want)
		must.OK(t, err)
		var got config
		if err := s.decode(raw, &got); err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
}

func TestOutputSchema(t *testing.T) {
	type node struct {
		Name     string `json:"name"`
		Untagged int
		Took     time.Duration `json:"took"`
		Children []*node       `json:"children"`
	}
	type twice struct {
		ID int
		Id int `json:"ID"`
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[node](), reflect.TypeFor[string](), reflect.TypeFor[struct{}](), reflect.TypeFor[any](),
		reflect.TypeFor[map[string]int](), reflect.TypeFor[[]byte](), reflect.TypeFor[*int](), reflect.TypeFor[time.Time](),
		reflect.TypeFor[twice](),
	} {
		if _, err := shapeOf(of, roleOutput); err != nil {
			t.Errorf("%v: %v", of, err)
		}
	}
	s, err := shapeOf(reflect.TypeFor[node](), roleOutput)
	must.OK(t, err)
	raw, err := json.Marshal(node{Name: "a", Took: time.Second, Children: []*node{{Name: "b"}}})
	must.OK(t, err)
	if err := s.schema.Validate(raw); err != nil {
		t.Errorf("%s: %v", raw, err)
	}
}

// New panics with the name of the field whose type or tag makes no sense.
func TestNewPanics(t *testing.T) {
	type none struct{}
	type cyclic struct {
		Next *cyclic `json:"next"`
	}
	tests := []struct {
		want string
		make func()
	}{
		{"payload: field n: input is for a string field", func() {
			of[none, struct { //
				N int `json:"n" input:"file"`
			}]()
		}},
		{"payload: field b: the payload has such an input field already, a", func() {
			of[none, struct {
				A string `json:"a" input:"file"`
				B string `json:"b" input:"url"`
			}]()
		}},
		{`payload: field a: input must be file, url or line, or modified or owner of a file, not "path"`, func() {
			of[none, struct {
				A string `json:"a" input:"path"`
			}]()
		}},
		{"payload: input modified and owner are of a file", func() {
			of[none, struct {
				A string `json:"a" input:"url"`
				B string `json:"b" input:"owner"`
			}]()
		}},
		{"payload: field in.a: input is for", func() {
			of[none, struct {
				In struct {
					A string `json:"a" input:"file"`
				} `json:"in"`
			}]()
		}},
		{"config: field a: input is for", func() {
			of[struct {
				A string `json:"a" input:"file"`
			}, none]()
		}},
		{"config: field n: secret is for string fields of the config", func() {
			of[struct {
				N int `json:"n" secret:"true"`
			}, none]()
		}},
		{"payload: field s: secret is for string fields of the config", func() {
			of[none, struct {
				S string `json:"s" secret:"true"`
			}]()
		}},
		{`payload: field n: default "many" is not JSON`, func() {
			of[none, struct {
				N int `json:"n" default:"many"`
			}]()
		}},
		{"payload: schema:", func() {
			of[none, struct { // a default that breaks its own rule
				N int `json:"n" default:"11" schema:"max=10"`
			}]()
		}},
		{"payload: schema:", func() {
			of[none, struct {
				D time.Duration `json:"d" default:"soon"`
			}]()
		}},
		{`payload: field n: schema rule "minimum=1": unknown`, func() {
			of[none, struct {
				N int `json:"n" schema:"minimum=1"`
			}]()
		}},
		{`payload: field n: schema rule "min=one"`, func() {
			of[none, struct {
				N int `json:"n" schema:"min=one"`
			}]()
		}},
		{`payload: field s: schema rule "pattern=("`, func() {
			of[none, struct {
				S string `json:"s" schema:"pattern=("`
			}]()
		}},
		{`payload: field n: schema rule "enum=1|two"`, func() {
			of[none, struct {
				N int `json:"n" schema:"enum=1|two"`
			}]()
		}},
		{"payload: field c: type chan int cannot be JSON", func() {
			of[none, struct {
				C chan int `json:"c"`
			}]()
		}},
		{"payload: field m: maps must have keys of type string", func() {
			of[none, struct {
				M map[int]string `json:"m"`
			}]()
		}},
		{"payload: field next: type sdk.cyclic contains itself", func() { of[none, cyclic]() }},
	}
	for _, test := range tests {
		panics(t, "sdk: plugin p: "+test.want, test.make)
	}
}

// panics checks with which text a call panics.
func panics(t *testing.T, want string, call func()) {
	t.Helper()
	defer func() {
		if v, _ := recover().(string); !strings.HasPrefix(v, want) {
			t.Errorf("panics with %q, want %q", v, want)
		}
	}()
	call()
}

func of[C, I any]() {
	New("p", "0.1.0", func(context.Context, *C, Item[I]) (string, error) { return "", nil })
}

func TestDescribeRefuses(t *testing.T) {
	type file struct {
		Path string `json:"path" input:"file"`
	}
	tests := []struct {
		want   string
		change func(*Plugin)
	}{
		{"", func(*Plugin) {}},
		{"name must be", func(p *Plugin) { p.Name = "No" }},
		{"semantic version", func(p *Plugin) { p.Version = "1.2" }},
		{"negative", func(p *Plugin) { p.Concurrency = -1 }},
		{"negative", func(p *Plugin) { p.Timeout = -1 }},
		{`Emits: "a b" is not the name of a kind`, func(p *Plugin) { p.Emits = []string{"a b"} }},
		{"example 1: payload: path: is required", func(p *Plugin) { p.Examples = []Example{{Payload: map[string]any{}}} }},
		{"example 1: output:", func(p *Plugin) { p.Examples = []Example{{Payload: file{"a"}, Output: make(chan int)}} }},
	}
	for _, test := range tests {
		p := New("p", "0.1.0", func(context.Context, *struct{}, Item[file]) (string, error) { return "", nil })
		test.change(p)
		_, err := p.describe()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	p := New("p", "0.1.0", func(context.Context, *struct{}, Item[struct{}]) (string, error) { return "", nil })
	p.Match = []string{"*.csv"}
	if _, err := p.describe(); err == nil ||
		!strings.Contains(err.Error(), `Match needs a payload field with the tag input:"file"`) {
		t.Error(err)
	}
}

func TestDescribeDefaults(t *testing.T) {
	p := NewBatch("p", "1.0.0-rc.1", func(context.Context, *struct{}, *Batch[struct{}, int]) error { return nil })
	p.Timeout, p.OnLost = 1500*time.Microsecond, OnLostDoubt
	d, err := p.describe()
	must.OK(t, err)
	if d.MaxBatch != 100 || d.MaxWaitMs != 20 || d.TimeoutMs != 2 || d.OnLost != wire.OnLost_ON_LOST_DOUBT ||
		d.Concurrency < 1 {
		t.Error(d)
	}
}

// The schema carries tune and single, because it is all that the host sees of a plugin. Each has its place.
func TestMarks(t *testing.T) {
	type tuned struct {
		Other string        `json:"other"`
		Wait  time.Duration `json:"marked" tune:"true" default:"1s"`
	}
	type single struct {
		Other    string `json:"other"`
		Encoding string `json:"marked" single:"true"`
	}
	for _, c := range []struct {
		name   string
		of     reflect.Type
		in     role
		marked func(settings.Field) bool
		not    role
		reason string
	}{
		{"tune", reflect.TypeFor[tuned](), roleConfig, func(f settings.Field) bool {
			return f.Tune
		}, rolePayload, `payload: field marked: tune:"true" is for fields of the config`},
		{"single", reflect.TypeFor[single](), rolePayload, func(f settings.Field) bool {
			return f.Single
		}, roleConfig, `config: field marked: single:"true" is for fields of the payload`},
	} {
		s, err := shapeOf(c.of, c.in)
		must.OK(t, err)
		read, err := settings.Compile(s.json)
		must.OK(t, err)
		for _, f := range read.Fields() {
			if c.marked(f) != (f.Name == "marked") {
				t.Errorf("%s: field %s is marked: %t", c.name, f.Name, c.marked(f))
			}
		}
		if _, err := shapeOf(c.of, c.not); err == nil || err.Error() != c.reason {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
