package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// SQL is how a database writes the values with which Checks tests the CHECKs of the schema.
type SQL struct {
	Time, Earlier string             // expressions: a time, one before it
	UUID, True    string             // expressions: a new UUID, true
	Text          func(n int) string // a text of n bytes
	Bytes         func(n int) string // n bytes
	// LeaseRows: a lease is a row of ledger_leases. The backlog then has a column stage instead of state.
	LeaseRows bool
	// Exec runs a statement; tables are named without a schema.
	Exec func(statement string) error
}

// Checks writes rows without the ledger, with each value at its limit and beyond it. The schema must refuse, from any
// program, what the rules forbid.
func Checks(t *testing.T, db SQL) {
	c := &checks{TB: t, db: db}
	c.items()
	c.backlog()
	if db.LeaseRows {
		c.leases()
	} else {
		c.leased()
	}
	c.attempts()
	c.kinds()
	c.locks()
}

type checks struct {
	testing.TB
	db SQL
	n  int // rows that were tried
}

// insert adds a row with one column changed. "{n}" in a value is replaced by a number that is new for each row.
func (c *checks) insert(table string, row map[string]string, column, value string) error {
	c.n++
	names, values := []string{}, []string{}
	for name, v := range row {
		if name == column {
			continue
		}
		names, values = append(names, name), append(values, strings.ReplaceAll(v, "{n}", fmt.Sprint(c.n)))
	}
	if column != "" {
		names, values = append(names, column), append(values, value)
	}
	return c.db.Exec(fmt.Sprintf("INSERT INTO ledger_%s (%s) VALUES (%s)", table, strings.Join(names, ", "),
		strings.Join(values, ", ")))
}

// try inserts a row with one column changed; without a column, as it is. It fails if the row is refused although it is
// legal, if it is accepted although it is not, or if something else than a constraint refuses it.
func (c *checks) try(table string, row map[string]string, column, value string, legal bool) {
	c.Helper()
	err := c.insert(table, row, column, value)
	if (err == nil) != legal || err != nil && !strings.Contains(err.Error(), "constraint") {
		c.Errorf("%s with %s = %.40s: legal is %v, got %v", table, column, value, legal, err)
	}
}

// edge tests a column at its limit and one beyond.
func (c *checks) edge(table string, row map[string]string, column string, limit int, value func(int) string) {
	c.Helper()
	c.try(table, row, column, value(limit), true)
	c.try(table, row, column, value(limit+1), false)
}

func (c *checks) items() {
	item := map[string]string{"kind": "'k'", "key": "'key-{n}'", "slot": "0", "created_at": c.db.Time}
	c.try("items", item, "", "", true)
	c.edge("items", item, "kind", bounds.MaxKind, c.db.Text)
	for _, text := range ledger.ItemTexts {
		c.edge("items", item, text.Column, text.Max, c.db.Text)
	}
	c.edge("items", item, "trace", tracing.Max, c.db.Text)
	c.edge("items", item, "payload", bounds.MaxPayload, c.db.Bytes)
	c.edge("items", item, "slot", scheduler.Slots-1, strconv.Itoa)
	for column, value := range map[string]string{"kind": "''", "key": "''", "slot": "-1", "epoch": "0",
		"base_attempt": "-1", "every": "''"} {
		c.try("items", item, column, value, false)
	}
}

func (c *checks) backlog() {
	state := "state"
	if c.db.LeaseRows {
		state = "stage"
	}
	ready := map[string]string{"item_id": "{n}", "kind": "'k'", state: "1", "slot": "0", "due_at": c.db.Time}
	c.try("backlog", ready, "", "", true)
	c.edge("backlog", ready, "priority", bounds.MaxPriority, strconv.Itoa)
	for column, value := range map[string]string{"priority": "-3", state: "5", "slot": "1024", "attempt": "-1",
		"epoch": "0", "failures": "-1", "crashes": "-1", "losses": "-1", "started_at": c.db.Time, "expires_at": c.db.Time,
		"reopen": c.db.True, "cancel": c.db.True} {
		c.try("backlog", ready, column, value, false)
	}
	if !c.db.LeaseRows {
		c.try("backlog", ready, "locked_by", "'a'", false)
		c.try("backlog", ready, "lock_id", c.db.UUID, false)
		c.try("backlog", ready, "leased_at", c.db.Time, false)
	}
	filed := map[string]string{"item_id": "{n}", "kind": "'k'", state: "1", "slot": "0", "due_at": c.db.Time, "gate": "1",
		"limit_key": "'a'"}
	c.try("backlog", filed, "", "", true)
	c.edge("backlog", filed, "limit_key", 2048, c.db.Text)
	for column, value := range map[string]string{"gate": "0", "limit_key": "NULL", "started_at": c.db.Time} {
		c.try("backlog", filed, column, value, false)
	}
	for _, code := range []string{"0", "3", "4"} {
		c.try("backlog", filed, state, code, false)
	}
}

func (c *checks) leased() {
	leased := map[string]string{"item_id": "{n}", "kind": "'k'", "state": "2", "slot": "0", "due_at": c.db.Time,
		"locked_by": "'a'", "lock_id": c.db.UUID, "leased_at": c.db.Time, "expires_at": c.db.Time}
	c.try("backlog", leased, "", "", true)
	c.edge("backlog", leased, "locked_by", bounds.MaxAgent, c.db.Text)
	for _, column := range []string{"locked_by", "lock_id", "leased_at", "expires_at"} {
		c.try("backlog", leased, column, "NULL", false)
	}
	for _, column := range []string{"reopen", "cancel"} {
		c.try("backlog", leased, column, c.db.True, true)
	}
	c.try("backlog", leased, "started_at", c.db.Time, true)
}

// leases: the backlog row of a leased item has the lock_id of its lease. It may have its own start mark and expiry.
func (c *checks) leases() {
	leased := map[string]string{"item_id": "{n}", "kind": "'k'", "stage": "1", "slot": "0", "due_at": c.db.Time,
		"lock_id": c.db.UUID}
	c.try("backlog", leased, "", "", true)
	for _, column := range []string{"reopen", "cancel"} {
		c.try("backlog", leased, column, c.db.True, true)
	}
	for _, column := range []string{"started_at", "expires_at"} {
		c.try("backlog", leased, column, c.db.Time, true)
	}
	for _, stage := range []string{"0", "2", "3", "4"} {
		c.try("backlog", leased, "stage", stage, false)
	}
	c.try("backlog", leased, "running", c.db.True, false)
	leased["gate"], leased["limit_key"], leased["running"] = "1", "''", c.db.True
	c.try("backlog", leased, "", "", true)
	c.try("backlog", leased, "running", "false", false)
	lease := map[string]string{"lock_id": c.db.UUID, "kind": "'k'", "agent": "'a'", "leased_at": c.db.Time,
		"expires_at": c.db.Time, "due_at": c.db.Time, "items": "ARRAY[1]"}
	c.try("leases", lease, "", "", true)
	c.edge("leases", lease, "agent", bounds.MaxAgent, c.db.Text)
	c.try("leases", lease, "items", "ARRAY[]::bigint[]", false)
	for column := range lease {
		c.try("leases", lease, column, "NULL", false)
	}
}

func (c *checks) attempts() {
	done := map[string]string{"item_id": "{n}", "attempt": "1", "epoch": "1", "outcome": "0", "final": c.db.True,
		"kind": "'k'", "agent": "'a'", "finished_at": c.db.Time}
	c.try("attempts", done, "", "", true)
	for column, limit := range map[string]int{"agent": bounds.MaxAgent, "worker": bounds.MaxWorker, "code": bounds.MaxCode,
		"error": bounds.MaxError, "log": bounds.MaxLog} {
		c.edge("attempts", done, column, limit, c.db.Text)
	}
	c.edge("attempts", done, "output", bounds.MaxOutput, c.db.Bytes)
	c.edge("attempts", done, "outcome", len(ledger.Outcomes)-1, strconv.Itoa)
	for column, value := range map[string]string{"attempt": "0", "epoch": "0", "outcome": "-1", "agent": "''",
		"code": "''"} {
		c.try("attempts", done, column, value, false)
	}
	// A period has at most one completion, in whichever attempt.
	period := map[string]string{"item_id": "999999", "attempt": "{n}", "epoch": "1", "outcome": "0", "final": c.db.True,
		"kind": "'k'", "agent": "'a'", "finished_at": c.db.Time, "period": c.db.Time}
	c.try("attempts", period, "", "", true)
	c.try("attempts", period, "outcome", "1", false)
	c.try("attempts", period, "outcome", "2", true)
}

func (c *checks) kinds() {
	c.try("kinds", map[string]string{"kind": "'k-{n}'"}, "", "", true)
	for _, name := range []string{"''", "'-k'", "'K'", "'a_b'", "'é'"} {
		c.try("kinds", map[string]string{}, "kind", name, false)
	}
	for _, column := range []string{"max_failures", "max_crashes", "max_lost"} {
		c.edge("kinds", map[string]string{"kind": "'k-{n}'"}, column, 10_000, strconv.Itoa)
	}
}

func (c *checks) locks() {
	lock := map[string]string{"name": "'l-{n}'", "token": c.db.UUID, "holder": "'a'", "since": c.db.Time,
		"keep_until": c.db.Time, "expires_at": c.db.Time}
	c.try("locks", lock, "", "", true)
	c.try("locks", lock, "token", "NULL", true) // released early: it stays held until expires_at, for AtLeast
	for column, limit := range map[string]int{"name": bounds.MaxLockName, "holder": bounds.MaxAgent} {
		c.edge("locks", lock, column, limit, c.db.Text)
		c.try("locks", lock, column, "''", false)
		c.try("locks", lock, column, "NULL", false)
	}
	for column, value := range map[string]string{"keep_until": c.db.Earlier, "since": "NULL", "expires_at": "NULL"} {
		c.try("locks", lock, column, value, false)
	}
	if !c.db.LeaseRows { // Postgres itself generates the fence
		c.try("locks", lock, "fence", "0", false)
	}
	lock["token"] = "NULL"
	c.try("locks", lock, "", "", true)
	c.try("locks", lock, "expires_at", c.db.Earlier, false) // a released lock stays until keep_until, not less
}

// Finds fails the test if no finding has all parts in its text. A finding that is not fine needs a reason and advice.
func Finds(t *testing.T, all []finding.Finding, check string, level finding.Level, parts ...string) {
	t.Helper()
	if !slices.ContainsFunc(all, func(f finding.Finding) bool {
		text := f.What + "\n" + f.Why + "\n" + f.Fix + "\n" + string(f.Act.Name)
		return f.Check == check && f.Level == level && (level == finding.LevelOK) == (f.Why == "" && f.Fix == "") &&
			!slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
	}) {
		t.Errorf("there is no %s about %s with %q, only:\n%+v", level, check, parts, all)
	}
}
