// Command noop is a plugin that does nothing, for measuring what everything around it costs. The
// benchmark builds it as ledgerd-plugin-noop and has it started as any plugin is.
package main

import (
	"context"

	"github.com/ledgerd/ledgerd/sdk"
)

type in struct {
	Path string `json:"path" input:"line" doc:"what would be worked"`
}

func nothing(context.Context, *struct{}, sdk.Item[in]) (*struct{}, error) { return nil, nil }

func main() {
	p := sdk.New("noop", "0.1.0", nothing)
	p.Doc = "Does nothing."
	p.Concurrency = 1000
	sdk.Main(p)
}
