package ours

import (
	"context"
	"fmt"
	"time"
)

// Mixed puts n items of three kinds into an empty ledger, as ten days of work would leave them; they were added at even
// intervals. 85 % were done a minute after that, with a small output. 10 % are ready, 5 % are due a year after they
// were added, and one in 2,000 is dead. Every minute has its tallies.
func (p *Place) Mixed(ctx context.Context, n int) error {
	const kind = `CASE i %% 3 WHEN 0 THEN 'page' WHEN 1 THEN 'mail' ELSE 'noop' END`
	if p.file != "" {
		now := time.Now().UnixMicro()
		return p.inFile(ctx,
			`INSERT INTO ledger_kinds (kind) VALUES ('page'), ('mail')`,
			fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, payload, created_at)
				WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
				SELECT `+kind+`, printf('https://host%%d.example/%%09d', i %% 1000, i), i %% 1024, CAST('{"country":"'||iif(i %% 50 = 0, 'de', 'us')||'"}' AS BLOB), %d - (%d - i) * %d / %d FROM n`,
				n, now, n, tenDays.Microseconds(), n),
			`INSERT INTO ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent, worker, output)
				SELECT id, created_at, created_at + 60000000, 1, 1, 0, 1, randomblob(16), kind, 'host/1/a', 'urlcheck@1.0.0+a', CAST(iif(id % 500 = 4, '{"status":404}', '{"status":200}') AS BLOB)
				FROM ledger_items WHERE id % 20 > 2 AND id % 2000 <> 3`,
			`INSERT INTO ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent, worker, code, error)
				SELECT id, created_at, created_at + 60000000, 1, 1, 2, 1, randomblob(16), kind, 'host/1/a', 'urlcheck@1.0.0+a', 'http_503', '503 Service Unavailable: '||key FROM ledger_items WHERE id % 2000 = 3`,
			fmt.Sprintf(`INSERT INTO ledger_backlog (item_id, due_at, state, slot, kind, attempt, failures)
				SELECT id, created_at + iif(id %% 20 = 2, %d, 0), CASE WHEN id %% 2000 = 3 THEN 3 WHEN id %% 20 = 2 THEN 0 ELSE 1 END, slot, kind, id %% 2000 = 3, id %% 2000 = 3
				FROM ledger_items WHERE id %% 20 <= 2 OR id %% 2000 = 3`, year.Microseconds()),
			fmt.Sprintf(`INSERT INTO ledger_tallies (at, kind, agent, done, failed, other, worked, waits, works)
				WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i < 14399)
				SELECT %d - i * 60000000, column1, 'host/1/a', %d / 50000, 1, 0, 60000000, '[0,0,0,0,0,0,0,0,0,0,0,0,0,9]', '[0,9]' FROM n, (VALUES ('page'), ('mail'), ('noop'))`,
				now-now%60_000_000, n))
	}
	return p.Exec(ctx, p.newKind(),
		`INSERT INTO ledger_kinds (kind) VALUES ('page'), ('mail')`,
		fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, payload, created_at)
			SELECT `+kind+`, 'https://host'||i %% 1000||'.example/'||lpad(i::text, 9, '0'), i %% 1024, convert_to('{"country":"'||CASE WHEN i %% 50 = 0 THEN 'de' ELSE 'us' END||'"}', 'UTF8'),
			now() - (%d - i) * interval '10 days' / %d FROM generate_series(1, %d) i`, n, n, n),
		`INSERT INTO ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent, worker, output)
			SELECT id, created_at, created_at + interval '1 minute', 1, 1, 0, true, gen_random_uuid(), kind, 'host/1/a', 'urlcheck@1.0.0+a', convert_to(CASE WHEN id % 500 = 4 THEN '{"status":404}' ELSE '{"status":200}' END, 'UTF8')
			FROM ledger_items WHERE id % 20 > 2 AND id % 2000 <> 3`,
		`INSERT INTO ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent, worker, code, error)
			SELECT id, created_at, created_at + interval '1 minute', 1, 1, 2, true, gen_random_uuid(), kind, 'host/1/a', 'urlcheck@1.0.0+a', 'http_503', '503 Service Unavailable: '||key FROM ledger_items WHERE id % 2000 = 3`,
		`INSERT INTO ledger_backlog (item_id, due_at, stage, slot, kind, attempt, failures)
			SELECT id, created_at + CASE WHEN id % 20 = 2 THEN interval '1 year' ELSE interval '0' END, CASE WHEN id % 2000 = 3 THEN 3 WHEN id % 20 = 2 THEN 0 ELSE 1 END, slot, kind, (id % 2000 = 3)::int, (id % 2000 = 3)::int
			FROM ledger_items WHERE id % 20 <= 2 OR id % 2000 = 3`,
		fmt.Sprintf(`INSERT INTO ledger_tallies (at, kind, agent, done, failed, other, worked, waits, works)
			SELECT date_trunc('minute', now()) - i * interval '1 minute', kind, 'host/1/a', %d / 50000, 1, 0, 60000000, '[0,0,0,0,0,0,0,0,0,0,0,0,0,9]', '[0,9]'
			FROM generate_series(0, 14399) i, (VALUES ('page'), ('mail'), ('noop')) k(kind)`, n))
}

const tenDays = 10 * 24 * time.Hour
