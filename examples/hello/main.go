// Command hello is a plugin: it greets. Everything there is to a plugin is on this page.
package main

import (
	"context"
	"strings"

	"github.com/ledgerd/ledgerd/sdk"
)

type Config struct {
	Suffix string `json:"suffix" default:"!" doc:"appended to every greeting"`
}

type In struct {
	Name string `json:"name" input:"line" doc:"whom to greet"`
}

func greet(ctx context.Context, cfg *Config, it sdk.Item[In]) (string, error) {
	it.Log.Info("greeting", "name", it.Payload.Name)
	return "hello " + strings.ToUpper(it.Payload.Name) + cfg.Suffix, nil
}

func main() { sdk.Main(sdk.New("hello", "0.1.0", greet)) }
