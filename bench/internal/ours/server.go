package ours

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
)

// ServerCost runs the work on n items and returns what it cost the whole Postgres server per item, with its background
// work: "cpu", µs of processor time, and "wal", bytes of write-ahead log. There is no "cpu" if the processes of the
// server are not visible: on another machine, or on a system without Linux's /proc. Without a URL there is no server.
func ServerCost(ctx context.Context, url string, n int, work func() error) (measure.Sample, error) {
	s := measure.Sample{}
	if url == "" {
		return s, work()
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return s, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const look = "SELECT pg_backend_pid(), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"
	var backend int
	var wal, walAfter float64
	if err := conn.QueryRow(ctx, look).Scan(&backend, &wal); err != nil {
		return s, err
	}
	server, visible := serverOf(backend)
	var cpu, cpuAfter float64
	if visible {
		cpu, visible = cpuTime(server)
	}
	if err := work(); err != nil {
		return s, err
	}
	if visible {
		if cpuAfter, visible = cpuTime(server); visible {
			s["cpu"] = (cpuAfter - cpu) / float64(n)
		}
	}
	if err := conn.QueryRow(ctx, look).Scan(&backend, &walAfter); err != nil {
		return s, err
	}
	s["wal"] = (walAfter - wal) / float64(n)
	return s, nil
}

// serverOf returns the process that started a backend; ok is false if no such backend is visible here.
func serverOf(backend int) (pid int, ok bool) {
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", backend))
	if err != nil || !bytes.HasPrefix(title, []byte("postgres: ")) {
		return 0, false
	}
	fields := stat(backend)
	if len(fields) < 2 {
		return 0, false
	}
	pid, err = strconv.Atoi(fields[1])
	return pid, err == nil
}

// cpuTime returns the processor time of a process and its children, also of those that have ended, in µs.
func cpuTime(pid int) (µs float64, ok bool) {
	children, err := childrenOf(pid)
	fields := stat(pid)
	if err != nil || len(fields) < 15 {
		return 0, false
	}
	if µs, err = ticked(fields[13:15]); err != nil { // of children, in user and in system mode
		return 0, false
	}
	for _, p := range append(children, pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p))
		if p != pid && err != nil {
			continue // it has ended
		}
		var ns float64
		if _, err := fmt.Sscan(string(text), &ns); err != nil {
			return 0, false
		}
		µs += ns / 1000
	}
	return µs, true
}

// ticked adds up times of Linux's /proc/PID/stat, in µs.
func ticked(times []string) (µs float64, err error) {
	for _, text := range times {
		ticks, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, err
		}
		µs += ticks * 1e6 / 100 // in /proc Linux always counts a hundred ticks per second
	}
	return µs, nil
}

// ownTime returns the processor time of all threads of a process, in µs, precise to a hundredth of a second.
func ownTime(pid int) (µs float64, err error) {
	fields := stat(pid)
	if len(fields) < 13 {
		return 0, fmt.Errorf("the processor time of process %d cannot be seen on this system", pid)
	}
	return ticked(fields[11:13])
}

// stat returns the fields of Linux's /proc/PID/stat from the third one on, the state.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	name := bytes.LastIndexByte(text, ')') // a name may contain anything
	return strings.Fields(string(text[name+1:]))
}
