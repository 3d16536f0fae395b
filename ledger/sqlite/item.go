package sqlite

import (
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// The columns of an item, once for reading and once for writing.

// itemColumns are the columns of an item i. scanItem reads them from the start of a row.
const itemColumns = `i.id, i.kind, i.scope, i.key, i.fingerprint, i.payload, i.shard_key, i.slot, i.every, i.zone, i.source, i.epoch, i.base_attempt, i.created_at, i.trace`

// itemWidth is the number of these columns.
var itemWidth = width(itemColumns)

// width returns how many columns a list has.
func width(columns string) int { return strings.Count(columns, ",") + 1 }

func scanItem(r row) ledger.Record {
	return ledger.Record{ID: r.int(0), Identity: ledger.Identity{Kind: r.text(1), Scope: r.text(2), Key: r.text(3)},
		Stored: ledger.Stored{Fingerprint: r.text(4), Payload: r.bytes(5), ShardKey: r.text(6), Slot: int(r.int(7)),
			Every: r.text(8), Zone: r.text(9), Source: r.text(10), Trace: r.text(14),
			CreatedAt: r.time(13)},
		Epoch: r.int(11), BaseAttempt: r.int(12)}
}

// newColumns are the columns of a new item, in the order of itemArgs.
const newColumns = `kind, scope, key, fingerprint, slot, shard_key, every, zone, payload, source, trace, checksum, epoch, created_at`

var insertItems = newBulk("INSERT INTO ledger_items ("+newColumns+")", width(newColumns),
	" ON CONFLICT (kind, scope, key) DO NOTHING")

func itemArgs(list []any, r *ledger.Record, now time.Time) []any {
	return append(list, r.Kind, r.Scope, r.Key, r.Fingerprint, r.Slot, null(r.ShardKey), null(r.Every), null(r.Zone),
		r.Payload, null(r.Source), null(r.Trace), int64(int32(r.Identity.Checksum(r.Payload))), r.Epoch, now)
}
