package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ledgerd/ledgerd/sdk"
)

// effect is the plugin of these tests: it writes its effects to a file, and fails on demand.
func init() { plugins["effect"] = effect }

type effectConfig struct {
	Path  string `json:"path" doc:"file to which every effect is appended"`
	Token string `json:"token" secret:"true" doc:"never seen anywhere"`
}

type effectIn struct {
	Text string `json:"text" input:"line" doc:"what to do"`
	How  string `json:"how" single:"true" default:"done" schema:"enum=done|skip|error|permanent|doubt|snooze|panic|exit|emit|hello" doc:"how it ends"`
	MS   int    `json:"ms" single:"true" schema:"min=0" doc:"how long it takes, milliseconds"`
	Till string `json:"till" single:"true" doc:"file whose appearance ends the work"`
}

type effectOut struct {
	Length int    `json:"length" doc:"of the text, bytes"`
	Text   string `json:"text" doc:"the text"`
}

func effect() *sdk.Plugin {
	p := sdk.New("effect", "0.1.0", func(ctx context.Context, cfg *effectConfig, it sdk.Item[effectIn]) (effectOut,
		error) {
		in := it.Payload
		it.Log.Info("at work", "attempt", it.Attempt)
		if err := cfg.note("start " + it.Key); err != nil {
			return effectOut{}, err
		}
		if err := in.wait(ctx); err != nil {
			return effectOut{}, err
		}
		out := effectOut{len(in.Text), in.Text}
		if err := in.end(it); err != nil {
			return out, err
		}
		return out, cfg.note("done " + it.Key)
	})
	p.Doc = "Does what a test asks for."
	p.Emits = []string{"note", "hello"}
	p.Concurrency = 8
	return p
}

// hello is a plugin in a separate program.
func hello() *sdk.Plugin {
	type config struct {
		Suffix string `json:"suffix" default:"!" doc:"appended to every greeting"`
	}
	type in struct {
		Name string `json:"name" input:"line" doc:"whom to greet"`
		Loud bool   `json:"loud" doc:"with capitals"`
	}
	p := sdk.New("hello", "1.2.0", func(_ context.Context, cfg *config, it sdk.Item[in]) (string, error) {
		return "hello " + it.Payload.Name + cfg.Suffix, nil
	})
	p.Doc = "Greets."
	p.MaxFailures, p.OnLost = 7, sdk.OnLostDoubt
	return p
}

// helloNext is a later version of hello, with one more setting.
func helloNext() *sdk.Plugin {
	type config struct {
		Suffix string `json:"suffix" default:"!!" doc:"appended to every greeting"`
		Prefix string `json:"prefix" default:"hello " doc:"what comes first"`
		Token  string `json:"token" secret:"true" doc:"of the greeter"`
	}
	type in struct {
		Name string `json:"name" input:"line" doc:"whom to greet"`
	}
	p := sdk.New("hello", "1.3.0", func(_ context.Context, cfg *config, it sdk.Item[in]) (string, error) {
		return cfg.Prefix + it.Payload.Name + cfg.Suffix, nil
	})
	p.Doc, p.Emits = "Greets.", []string{"mail", "effect"}
	return p
}

// note appends a line to the file of effects.
func (c *effectConfig) note(line string) error {
	if c.Path == "" {
		return nil
	}
	f, err := os.OpenFile(c.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}

// wait waits for MS milliseconds, and until the file Till exists.
func (in effectIn) wait(ctx context.Context) error {
	look := time.Tick(10 * time.Millisecond)
	for till := time.Now().Add(time.Duration(in.MS) * time.Millisecond); ; {
		_, err := os.Stat(in.Till)
		if time.Now().After(till) && (in.Till == "" || err == nil) {
			return nil
		}
		select {
		case <-look:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// end ends the item in the way How.
func (in effectIn) end(it sdk.Item[effectIn]) error {
	switch in.How {
	case "skip":
		return sdk.Skip("nothing to do")
	case "error":
		return sdk.Code("odd", fmt.Errorf("%s is odd", in.Text))
	case "permanent":
		return sdk.Permanent(sdk.Code("bad", fmt.Errorf("%s is bad", in.Text)))
	case "doubt":
		return sdk.Doubt(errors.New("not known"))
	case "snooze":
		return sdk.Snooze(time.Hour, "not now")
	case "panic":
		panic("as told")
	case "exit":
		os.Exit(3)
	case "hello":
		return it.Emit(sdk.Child{Kind: "hello", Key: in.Text, Payload: map[string]string{"name": in.Text}})
	case "emit":
		return it.Emit(sdk.Child{Kind: "note", Key: "child of " + in.Text, Payload: map[string]string{"text": in.Text}})
	}
	return nil
}
