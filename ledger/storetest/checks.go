package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// SQL is how a database writes what the schemas' CHECKs are tried with.
type SQL struct {
	Time, Earlier string             // expressions: a time, one before it
	UUID, True    string             // expressions: a new UUID, true
	Text          func(n int) string // a text of n bytes
	Bytes         func(n int) string // n bytes
	// Exec runs a statement; tables are named without a schema.
	Exec func(statement string) error
}

// Checks writes rows past the ledger, each at a limit and each beyond it: whatever a program
// does, the schema refuses what the rules forbid.
func Checks(t *testing.T, db SQL) {
	n := 0
	insert := func(table string, row map[string]string, column, value string) error {
		n++
		names, values := []string{}, []string{}
		for name, v := range row {
			if name == column {
				continue
			}
			names, values = append(names, name), append(values, strings.ReplaceAll(v, "N", fmt.Sprint(n)))
		}
		if column != "" {
			names, values = append(names, column), append(values, value)
		}
		return db.Exec(fmt.Sprintf("INSERT INTO ledger_%s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(values, ", ")))
	}
	try := func(table string, row map[string]string, column, value string, legal bool) {
		t.Helper()
		if err := insert(table, row, column, value); (err == nil) != legal {
			t.Errorf("%s with %s = %.40s: legal is %v, got %v", table, column, value, legal, err)
		}
	}
	edge := func(table string, row map[string]string, column string, limit int, value func(int) string) {
		t.Helper()
		try(table, row, column, value(limit), true)
		try(table, row, column, value(limit+1), false)
	}
	number := func(n int) string { return fmt.Sprint(n) }

	item := map[string]string{"kind": "'k'", "key": "'key-N'", "slot": "0", "created_at": db.Time}
	try("items", item, "", "", true)
	for column, limit := range map[string]int{"kind": ledger.MaxKind, "scope": ledger.MaxScope, "key": ledger.MaxKey, "fingerprint": ledger.MaxFingerprint,
		"shard_key": ledger.MaxShardKey, "every": ledger.MaxEvery, "zone": ledger.MaxZone, "source": ledger.MaxSource} {
		edge("items", item, column, limit, db.Text)
	}
	edge("items", item, "payload", ledger.MaxPayload, db.Bytes)
	edge("items", item, "slot", ledger.Slots-1, number)
	for column, value := range map[string]string{"kind": "''", "key": "''", "slot": "-1", "epoch": "0", "base_attempt": "-1", "every": "''"} {
		try("items", item, column, value, false)
	}

	ready := map[string]string{"item_id": "N", "kind": "'k'", "state": "1", "slot": "0", "due_at": db.Time}
	try("backlog", ready, "", "", true)
	edge("backlog", ready, "priority", ledger.MaxPriority, number)
	for column, value := range map[string]string{"priority": "-3", "state": "5", "slot": "1024", "attempt": "-1", "epoch": "0", "failures": "-1", "crashes": "-1", "losses": "-1",
		"locked_by": "'a'", "lock_id": db.UUID, "leased_at": db.Time, "started_at": db.Time, "expires_at": db.Time, "reopen": db.True, "cancel": db.True} {
		try("backlog", ready, column, value, false)
	}
	gated := map[string]string{"item_id": "N", "kind": "'k'", "state": "1", "slot": "0", "due_at": db.Time, "gate": "2"}
	for column, value := range map[string]string{"blocked_on": "'r'", "passed_at": db.Time} {
		try("backlog", ready, column, value, false)
		try("backlog", gated, column, value, true)
	}
	edge("backlog", gated, "blocked_on", ledger.MaxResource, db.Text)
	try("backlog", gated, "blocked_on", "''", false)
	try("backlog", gated, "gate", "3", false)
	gated["blocked_on"] = "'r'"
	for _, state := range []string{"0", "3", "4"} {
		try("backlog", gated, "state", state, false)
	}
	held := map[string]string{"resource": "'r-N'", "item_id": "1", "lock_id": db.UUID, "since": db.Time}
	try("held", held, "", "", true)
	try("held", held, "resource", "'one'", true)
	try("held", held, "resource", "'one'", false) // one holder at a time
	edge("held", held, "resource", ledger.MaxResource, db.Text)
	try("held", held, "lock_id", "NULL", false)
	try("reserver", map[string]string{"item_id": "1", "kind": "'k'", "until": db.Time}, "one", "1", false) // there is one already
	try("reserver", map[string]string{"item_id": "1", "kind": "'k'", "until": db.Time}, "one", "2", false)

	leased := map[string]string{"item_id": "N", "kind": "'k'", "state": "2", "slot": "0", "due_at": db.Time, "locked_by": "'a'", "lock_id": db.UUID,
		"leased_at": db.Time, "expires_at": db.Time}
	try("backlog", leased, "", "", true)
	edge("backlog", leased, "locked_by", ledger.MaxAgent, db.Text)
	for _, column := range []string{"locked_by", "lock_id", "leased_at", "expires_at"} {
		try("backlog", leased, column, "NULL", false)
	}
	for _, column := range []string{"reopen", "cancel"} {
		try("backlog", leased, column, db.True, true)
	}
	try("backlog", leased, "started_at", db.Time, true)

	done := map[string]string{"item_id": "N", "attempt": "1", "epoch": "1", "outcome": "0", "final": db.True, "kind": "'k'", "agent": "'a'", "finished_at": db.Time}
	try("attempts", done, "", "", true)
	for column, limit := range map[string]int{"agent": ledger.MaxAgent, "worker": ledger.MaxWorker, "code": ledger.MaxCode, "error": ledger.MaxError, "log": ledger.MaxLog} {
		edge("attempts", done, column, limit, db.Text)
	}
	edge("attempts", done, "output", ledger.MaxOutput, db.Bytes)
	edge("attempts", done, "outcome", len(ledger.Outcomes)-1, number)
	for column, value := range map[string]string{"attempt": "0", "epoch": "0", "outcome": "-1", "agent": "''", "code": "''"} {
		try("attempts", done, column, value, false)
	}
	// One completion per period, whatever the attempt.
	period := map[string]string{"item_id": "999999", "attempt": "N", "epoch": "1", "outcome": "0", "final": db.True, "kind": "'k'", "agent": "'a'", "finished_at": db.Time, "period": db.Time}
	try("attempts", period, "", "", true)
	try("attempts", period, "outcome", "1", false)
	try("attempts", period, "outcome", "2", true)

	try("kinds", map[string]string{"kind": "'k-N'"}, "", "", true)
	for _, name := range []string{"''", "'-k'", "'K'", "'a_b'", "'é'"} {
		try("kinds", map[string]string{}, "kind", name, false)
	}
	for _, column := range []string{"max_failures", "max_crashes", "max_lost"} {
		edge("kinds", map[string]string{"kind": "'k-N'"}, column, 10_000, number)
	}

	lock := map[string]string{"name": "'l-N'", "token": db.UUID, "holder": "'a'", "since": db.Time, "keep_until": db.Time, "expires_at": db.Time}
	try("locks", lock, "", "", true)
	try("locks", lock, "token", "NULL", true) // it is kept until expires_at
	for column, limit := range map[string]int{"name": ledger.MaxLockName, "holder": ledger.MaxAgent} {
		edge("locks", lock, column, limit, db.Text)
		try("locks", lock, column, "''", false)
		try("locks", lock, column, "NULL", false)
	}
	for column, value := range map[string]string{"keep_until": db.Earlier, "fence": "0", "since": "NULL", "expires_at": "NULL"} {
		try("locks", lock, column, value, false)
	}
	lock["token"] = "NULL"
	try("locks", lock, "expires_at", db.Earlier, false) // released, and not until keep_until
}
