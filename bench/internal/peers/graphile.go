package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

// GraphileWorker is the name of the peer and of its sides, and its name on npm.
const GraphileWorker = "graphile-worker"

// Graphile is graphile-worker in a process of Node.js, with an installation in a schema of its own.
type Graphile struct {
	url, schema string
	cmd         *exec.Cmd
	commands    io.WriteCloser
	answers     *json.Decoder
}

// NewGraphile starts the program. It makes the schema and the tables in it.
func NewGraphile(ctx context.Context, programs, url string) (g *Graphile, err error) {
	g = &Graphile{url: url, schema: ours.SchemaName("graphile")}
	g.cmd = exec.CommandContext(ctx, "node", filepath.Join(programs, "graphile", "main.js"), url, g.schema)
	g.cmd.Stderr = os.Stderr
	if g.commands, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	g.answers = json.NewDecoder(bufio.NewReader(out))
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	if err := g.answers.Decode(&struct{}{}); err != nil {
		return nil, errors.Join(fmt.Errorf("%s has not started: %w", GraphileWorker, err), g.Remove())
	}
	return g, nil
}

// Remove drops the schema and ends the program.
func (g *Graphile) Remove() error {
	err := errors.Join(g.commands.Close(), g.cmd.Wait())
	if err != nil {
		err = fmt.Errorf("%s: %w", GraphileWorker, err)
	}
	return err
}

// measured is the answer of the program.
type measured struct {
	Add, Drain float64
	Took       []float64 // milliseconds
}

// ask sends a command to the program and waits for its answer.
func (g *Graphile) ask(command string) (m measured, err error) {
	if _, err = fmt.Fprintln(g.commands, command); err == nil {
		err = g.answers.Decode(&m)
	}
	if err != nil {
		err = fmt.Errorf("%s, %s: %w", GraphileWorker, command, err)
	}
	return m, err
}

// Add adds n jobs with add_jobs by so many concurrent clients, and returns the rate.
func (g *Graphile) Add(n, clients int) (perSecond float64, err error) {
	m, err := g.ask(fmt.Sprintf("add %d %d", n, clients))
	return m.Add, err
}

// AddAndDrain measures the adding and the drain of n jobs, and what the drain costs the server.
func (g *Graphile) AddAndDrain(ctx context.Context, n int) (s measure.Sample, err error) {
	add, err := g.Add(n, 1)
	if err != nil {
		return nil, err
	}
	if err := ours.SettlePostgres(ctx, g.url, g.schema); err != nil {
		return nil, err
	}
	var drained measured
	s, err = ours.ServerCost(ctx, g.url, n, func() (err error) {
		drained, err = g.ask(fmt.Sprintf("drain %d", n))
		return err
	})
	s["add"], s["drain"] = add, drained.Drain
	return s, err
}

// StartLatency adds tries jobs, one by one, on an idle system, and returns how long each took from
// the call to the start of its task.
func (g *Graphile) StartLatency(tries int) (took []time.Duration, err error) {
	m, err := g.ask(fmt.Sprintf("start %d", tries))
	for _, ms := range m.Took {
		took = append(took, time.Duration(ms*float64(time.Millisecond)))
	}
	return took, err
}
