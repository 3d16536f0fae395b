package ours

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// memory returns the resident memory (VmRSS) of a process and of its children, in MiB. It reads Linux's /proc.
func memory(pid int) (own, children float64, err error) {
	if own, err = resident(pid); err != nil {
		return 0, 0, err
	}
	pids, err := childrenOf(pid)
	if err != nil {
		return 0, 0, err
	}
	for _, child := range pids {
		if mib, err := resident(child); err == nil { // a child that has ended has none
			children += mib
		}
	}
	return own, children, nil
}

// childrenOf returns the child processes of a process that have not ended.
func childrenOf(pid int) (pids []int, err error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // each thread has its own
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return nil, err
			}
			pids = append(pids, child)
		}
	}
	return pids, nil
}

func resident(pid int) (mib float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	kib, err := strconv.Atoi(fields[0])
	return float64(kib) / 1024, err
}

func (p *Place) attemptsInFile(ctx context.Context) (counts []int, seconds float64, err error) {
	db, err := sql.Open("sqlite", "file:"+p.file+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, 0, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT count(*) FROM ledger_attempts GROUP BY agent")
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, 0, err
		}
		counts = append(counts, n)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT (max(finished_at) - min(leased_at)) / 1e6 FROM ledger_attempts").Scan(&seconds)
	return counts, seconds, err
}

func median(took []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(took))[len(took)/2]
}
