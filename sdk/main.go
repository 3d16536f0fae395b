package sdk

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Main serves p and does not return. If you start the program by hand, it has two commands: describe (JSON) and doc
// (Markdown).
func Main(p *Plugin) {
	if Started() {
		Serve(p)
	}
	os.Exit(command(p, os.Args[1:], os.Stdout, os.Stderr))
}

// command runs one command and returns the exit code.
func command(p *Plugin, args []string, stdout, stderr io.Writer) int {
	d, err := p.describe()
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "describe":
		err = printDescription(d, stdout)
	case "doc":
		_, err = io.WriteString(stdout, reference(p, d))
	default:
		fmt.Fprintf(stderr, usage, p.Name, p.Version)
		return 1 // the protocol wants 1 from a plugin that a person starts; see package wire
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

const usage = `%[1]s %[2]s is a plugin of ledgerd. ledgerd starts it by itself:

  ledgerd run %[1]s INPUT…

If you start it by hand, it has these commands:

  describe   print its description, as JSON
  doc        print its reference, as Markdown

To try it without a ledger:

  ledgerd plugin run PATH INPUT…
`

// description is what describe prints.
type description struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Doc          string            `json:"doc,omitempty"`
	SDK          string            `json:"sdk"`
	Features     []string          `json:"features,omitempty"`
	Match        []string          `json:"match,omitempty"`
	Emits        []string          `json:"emits,omitempty"`
	OnLost       string            `json:"on_lost"`
	TimeoutMS    int64             `json:"timeout_ms,omitempty"`
	MaxFailures  int32             `json:"max_failures,omitempty"`
	Concurrency  int32             `json:"concurrency"`
	MaxBatch     int32             `json:"max_batch,omitempty"`
	MaxWaitMS    int64             `json:"max_wait_ms,omitempty"`
	Input        map[string]string `json:"input,omitempty"`
	Secrets      []string          `json:"secrets,omitempty"`
	ConfigSchema json.RawMessage   `json:"config_schema"`
	InputSchema  json.RawMessage   `json:"input_schema"`
	OutputSchema json.RawMessage   `json:"output_schema"`
	Examples     []example         `json:"examples,omitempty"`
}

type example struct {
	Doc     string          `json:"doc,omitempty"`
	Payload json.RawMessage `json:"payload"`
	Output  json.RawMessage `json:"output,omitempty"`
}

func printDescription(d *wire.DescribeResponse, stdout io.Writer) error {
	v := description{
		Name: d.Name, Version: d.Version, Doc: d.Doc, SDK: d.Sdk, Features: d.Features, Match: d.Match,
		Emits: d.Emits, OnLost: "repeat",
		TimeoutMS: d.TimeoutMs, MaxFailures: d.MaxFailures, Concurrency: d.Concurrency, MaxBatch: d.MaxBatch,
		MaxWaitMS: d.MaxWaitMs,
		Secrets:   d.Secrets, ConfigSchema: d.ConfigSchema, InputSchema: d.InputSchema, OutputSchema: d.OutputSchema,
	}
	if d.OnLost == wire.OnLost_ON_LOST_DOUBT {
		v.OnLost = "doubt"
	}
	if d.Input != nil {
		v.Input = map[string]string{"field": d.Input.Field, "type": d.Input.Type}
		for name, field := range map[string]string{"modified": d.Input.Modified, "owner": d.Input.Owner} {
			if field != "" {
				v.Input[name] = field
			}
		}
	}
	for _, e := range d.Examples {
		v.Examples = append(v.Examples, example{e.Doc, e.Payload, e.Output})
	}
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
