package main

import (
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// itemRow is an item as lists show it.
type itemRow struct {
	ID         int64             `json:"id"`
	Kind       string            `json:"kind"`
	Scope      string            `json:"scope"`
	Key        string            `json:"key"`
	State      ledger.State      `json:"state"`
	Round      string            `json:"round"`
	RoundState ledger.RoundState `json:"round_state"`
	Attempt    int64             `json:"attempt"`
	Failures   int               `json:"failures"`
	Priority   int16             `json:"priority"`
	Due        report.Time       `json:"due"`
	Agent      string            `json:"agent"`
	Leased     report.Time       `json:"leased_at"`
	Expires    report.Time       `json:"expires"`
	Outcome    ledger.Outcome    `json:"outcome"`
	Code       string            `json:"code"`
	Error      string            `json:"error"`
	Worker     string            `json:"worker"`
	Plugin     string            `json:"plugin"`
	Added      report.Time       `json:"added_at"`
	Started    report.Time       `json:"started_at"`
	Ended      report.Time       `json:"ended_at"`
	Took       report.Duration   `json:"took_s"`
	Payload    report.Bytes      `json:"payload"`
	Output     report.Bytes      `json:"output"`
}

// rowHelp says what the fields of an itemRow are.
const rowHelp = `Fields of a row, all of them with -o json, jsonl and csv, or exactly those that --columns names:
  id, kind, scope, key, state, round, round_state, attempt (how many), failures (of this round), priority, due, added_at
  agent, leased_at, expires: who holds it, since when and until when
  outcome, code, error, worker (who), plugin (NAME@VERSION), started_at, ended_at, took_s (seconds): of the
  newest attempt that ended
  payload, payload.FIELD, output, output.FIELD: output is that of the newest attempt that has one
Names that end with _at or _s do without it: --columns key,output.status,took,ended.`

func newItemRow(it ledger.Item) itemRow {
	plugin, _, _ := strings.Cut(it.Worker, "+") // the digest of its settings
	row := itemRow{ID: it.ID, Kind: it.Kind, Scope: it.Scope, Key: it.Key, State: it.State, Round: it.Round, RoundState: it.RoundState, Attempt: it.Attempt,
		Failures: it.Failures, Priority: it.Priority, Due: report.Time(it.Due),
		Agent: it.Agent, Leased: report.Time(it.LeasedAt), Expires: report.Time(it.ExpiresAt),
		Outcome: it.Outcome, Code: it.Code, Error: it.Error, Worker: it.EndedBy, Plugin: plugin,
		Added: report.Time(it.CreatedAt), Started: report.Time(it.StartedAt), Ended: report.Time(it.EndedAt),
		Payload: it.Payload, Output: it.Output}
	if !it.StartedAt.IsZero() {
		took := report.Duration(it.EndedAt.Sub(it.StartedAt))
		row.Took = took
	}
	return row
}

// showsOutput says whether rows are printed with the output of items, which is read only then.
func showsOutput(p *report.Printer) bool {
	if p.Columns == nil {
		return p.Format != report.Table
	}
	return slices.ContainsFunc(p.Columns, func(c string) bool { return c == "output" || strings.HasPrefix(c, "output.") })
}
