package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// run works inputs in this process, one call of the function after the other, and prints a
// line of JSON for each. It returns the exit code.
func run(p *Plugin, d *wire.DescribeResponse, args []string, stdout, stderr io.Writer) int {
	set, with, inputs, err := runArgs(args)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	items, err := runItems(p, d, set, inputs)
	if err != nil {
		fmt.Fprintf(stderr, "%s: payload: %v\n", p.Name, err)
		return exitUsage
	}
	inst, err := runConfig(p, with)
	if err != nil {
		fmt.Fprintf(stderr, "%s: config: %v\n", p.Name, err)
		return exitUsage
	}
	r := &runner{inst: inst, emits: slices.Concat(p.Emits, inst.emits()), stdout: stdout, stderr: stderr,
		running: map[*task]bool{}}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, r.interrupt)()
	size := 1
	if p.run.batched() {
		size, _ = p.batch()
	}
	for batch := range slices.Chunk(items, size) {
		if ctx.Err() != nil {
			break
		}
		r.work(batch)
	}
	if err := inst.close(); err != nil {
		fmt.Fprintf(stderr, "%s: Close: %v\n", p.Name, err)
		return exitError
	}
	if r.completed < len(items) {
		return exitUnfinished
	}
	return 0
}

const runUsage = "usage: run [--set k=v]… [--with k=v]… INPUT…"

// runArgs takes flags and inputs in any order.
func runArgs(args []string) (set, with, inputs []string, err error) {
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Func("set", "`k=v` of the payload", func(v string) error { set = append(set, v); return nil })
	f.Func("with", "`k=v` of the config", func(v string) error { with = append(with, v); return nil })
	for len(args) > 0 {
		if err := f.Parse(args); err != nil {
			return nil, nil, nil, fmt.Errorf("%w\n%s", err, runUsage)
		}
		if args = f.Args(); len(args) > 0 {
			inputs, args = append(inputs, args[0]), args[1:]
		}
	}
	if len(inputs) == 0 {
		return nil, nil, nil, errors.New("run needs an INPUT\n" + runUsage)
	}
	return set, with, inputs, nil
}

// runItems makes an item of each input. The input goes into the payload's input field, or is the payload if there is no
// such field.
func runItems(p *Plugin, d *wire.DescribeResponse, set, inputs []string) ([]*wire.Item, error) {
	_, shape, _ := p.run.shapes()
	items := make([]*wire.Item, len(inputs))
	for i, input := range inputs {
		key, base, assignments := strconv.Itoa(i+1), []byte(input), set
		if d.Input != nil {
			var err error
			if key, err = keyOf(d.Input.Type, input); err != nil {
				return nil, err
			}
			text, err := json.Marshal(key)
			if err != nil {
				return nil, err
			}
			base, assignments = nil, append(slices.Clip(set), d.Input.Field+":="+string(text))
		}
		payload, err := shape.schema.Parse(base, assignments)
		if err == nil {
			err = shape.schema.Validate(payload)
		}
		if err != nil {
			return nil, err
		}
		items[i] = &wire.Item{
			Id: int64(i + 1), Attempt: 1, Kind: p.Name, Key: key,
			IdempotencyKey: "run/" + key, Payload: payload, TimeoutMs: d.TimeoutMs,
		}
	}
	return items, nil
}

// keyOf is the key of an item, as ledgerd makes it of INPUT.
func keyOf(inputType, text string) (string, error) {
	if inputType == "file" {
		return filepath.Abs(text)
	}
	return strings.TrimSpace(text), nil
}

func runConfig(p *Plugin, with []string) (instance, error) {
	shape, _, _ := p.run.shapes()
	config, err := shape.schema.Parse(nil, with)
	if err != nil {
		return nil, err
	}
	config, secrets, err := shape.schema.Split(config)
	if err != nil {
		return nil, err
	}
	for name, value := range secrets {
		if path, isFile := strings.CutPrefix(value, "file:"); isFile { // as in the config of ledgerd
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			secrets[name] = strings.TrimRight(string(text), "\r\n")
		}
	}
	inst, problems := p.run.configure(context.Background(), config, secrets, false)
	if len(problems) == 0 {
		return inst, nil
	}
	list := new(settings.Error)
	for _, pr := range problems {
		list.Problems = append(list.Problems, settings.Problem{Field: pr.Field, Message: pr.Message})
	}
	return nil, list
}

// runner works the items of the command run. It is the sink of their tasks.
type runner struct {
	inst           instance
	emits          []string
	stdout, stderr io.Writer

	mu        sync.Mutex
	running   map[*task]bool
	completed int
}

func (r *runner) work(items []*wire.Item) {
	var tasks []*task
	r.mu.Lock()
	for _, it := range items {
		t := newTask(it, r.emits, r)
		t.startTimeout()
		r.running[t] = true
		tasks = append(tasks, t)
	}
	r.mu.Unlock()
	var call sync.WaitGroup
	call.Go(func() { r.inst.work(tasks) }) // the function may end its goroutine
	call.Wait()
}

func (r *runner) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.running {
		t.cancel(ErrStopping)
	}
}

// line is what run prints of an item.
type line struct {
	Type    string          `json:"type"`
	Key     string          `json:"key"`
	Outcome string          `json:"outcome"`
	Final   bool            `json:"final,omitempty"`
	DelayMS int64           `json:"delay_ms,omitempty"`
	Code    string          `json:"code,omitempty"`
	Error   string          `json:"error,omitempty"`
	Output  json.RawMessage `json:"output,omitempty"`
	Emitted []child         `json:"emitted,omitempty"`
	Log     string          `json:"log,omitempty"`
}

type child struct {
	Kind    string          `json:"kind"`
	Scope   string          `json:"scope"`
	Key     string          `json:"key"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// settled implements sink.
func (r *runner) settled(t *task) {
	res := &t.result
	outcome := strings.ToLower(strings.TrimPrefix(res.Outcome.String(), "OUTCOME_"))
	l := line{
		Type: "item", Key: t.item.Key, Outcome: outcome, Final: res.Final, DelayMS: res.DelayMs,
		Code: res.Code, Error: res.Error, Output: res.Output, Log: res.Log,
	}
	for _, c := range res.Emit {
		l.Emitted = append(l.Emitted, child{c.Kind, c.Scope, c.Key, c.Payload})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, t)
	if res.Outcome == wire.Result_OUTCOME_DONE || res.Outcome == wire.Result_OUTCOME_SKIPPED {
		r.completed++
	}
	e := json.NewEncoder(r.stdout)
	e.SetEscapeHTML(false)
	if err := e.Encode(l); err != nil {
		fmt.Fprintln(r.stderr, err)
	}
}

// progressed implements sink.
func (r *runner) progressed(t *task, p *wire.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Total > 0 {
		fmt.Fprintf(r.stderr, "%s: %d of %d %s\n", t.item.Key, p.Done, p.Total, p.Unit)
	} else {
		fmt.Fprintf(r.stderr, "%s: %d %s\n", t.item.Key, p.Done, p.Unit)
	}
}
