//go:build unix

package chaostest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// cardBegin and cardEnd enclose the figures in a document.
const (
	cardBegin = "<!-- figures: made by ledgerchaos, see below -->"
	cardEnd   = "<!-- end of figures -->"
)

// WriteCard writes the figures into a document, between these lines.
func (t *Totals) WriteCard(path string) error { return Fill(path, cardBegin, cardEnd, t.card()) }

// sum adds up a figure over all rows.
func (t *Totals) sum(of func(*Total) int) (n int) {
	for _, s := range t.Runs {
		n += of(s)
	}
	return n
}

func (t *Totals) card() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	fault := func(db Database, names ...Fault) int {
		return t.sum(func(s *Total) (n int) {
			if s.Database == db {
				for _, name := range names {
					n += s.Faults[string(name)]
				}
			}
			return n
		})
	}
	both := func(names ...Fault) int { return fault(SQLite, names...) + fault(Postgres, names...) }
	p("\n| | SQLite | Postgres | together |\n|---|---:|---:|---:|\n")
	row := func(name string, sqlite, postgres int) {
		p("| %s | %d | %d | **%d** |\n", name, sqlite, postgres, sqlite+postgres)
	}
	of := func(db Database, of func(*Total) int) int {
		return t.sum(func(s *Total) int {
			if s.Database == db {
				return of(s)
			}
			return 0
		})
	}
	rows := func(name string, f func(*Total) int) { row(name, of(SQLite, f), of(Postgres, f)) }
	rows("histories that counted, judged by both checkers", func(s *Total) int { return s.Counted })
	rows("of these over HTTP", func(s *Total) (n int) {
		if s.Fault.remote() {
			n = s.Counted
		}
		return n
	})
	rows("histories that were void", func(s *Total) int { return s.Void })
	row("daemons killed with SIGKILL, at any moment", fault(SQLite, Kill, Clock), fault(Postgres, Kill, Clock))
	rows("daemons that died or froze at a failpoint", func(s *Total) (n int) {
		for name, count := range s.Faults {
			if strings.HasPrefix(name, "at ") {
				n += count
			}
		}
		return n
	})
	row("pauses longer than the lease", fault(SQLite, Pause), fault(Postgres, Pause))
	row("over HTTP: workers and servers killed", fault(SQLite, RemoteKill), fault(Postgres, RemoteKill))
	row("over HTTP: pauses of workers and servers longer than the lease", fault(SQLite, RemotePause),
		fault(Postgres, RemotePause))
	row("over HTTP: connections cut or frozen", fault(SQLite, RemoteCut), fault(Postgres, RemoteCut))
	row("agents over MCP killed, frozen or ended", fault(SQLite, Agents), fault(Postgres, Agents))
	row("database faults", fault(SQLite, DiskFull, Hog), fault(Postgres, Crash, Terminate, Cut, ReadOnly))
	row("failovers to a synchronous standby", 0, fault(Postgres, Failover))
	rows("plugins that misbehaved", func(s *Total) (n int) {
		for _, mode := range Modes {
			n += s.Faults[modePrefix+mode]
		}
		return n
	})
	rows("calls recorded", func(s *Total) int { return s.Calls })
	rows("calls whose outcome the caller did not learn", func(s *Total) int { return s.Unanswered })
	rows("items completed", func(s *Total) int { return s.Completed })
	rows("attempts interrupted by a fault", func(s *Total) int { return s.Hit })
	rows("effects that were repeated after an interruption", func(s *Total) int { return s.Repeated })
	rows("items that the second checker left out: the outcome of a call is unknown", func(s *Total) int { return s.Unclear })
	rows("**promises broken**", func(s *Total) int { return s.Violations })
	all := &Total{Recovered: map[int]int{}}
	recovered := 0
	for _, s := range t.Runs {
		for tenths, n := range s.Recovered {
			if s.Fault == Kill {
				all.Recovered[tenths] += n
				recovered += n
			}
		}
	}
	p("\nTime from the kill of a worker until one of its items was free again (lease of 5 s, %d items): p50 %.1f s, "+
		"p99 %.1f s, longest %.1f s. The promise of 5 s after the lease holds while another worker runs. In some of these "+
		"runs the killed worker was the only one, and the next one had to start first.\n",
		recovered, all.quantile(.5), all.quantile(.99), all.quantile(1))
	overtaken := map[Database]float64{}
	for _, s := range t.Runs {
		overtaken[s.Database] = max(overtaken[s.Database], s.Overtaking)
	}
	p("\nThe longest time that an item waited while items that were due later were claimed: %.1f s on SQLite, "+
		"%.1f s on Postgres.\n",
		overtaken[SQLite], overtaken[Postgres])
	p("\nDatabase faults: %d crashes of the server, %d connections terminated, %d cut at a commit; the server was read-only %d times, "+
		"the disk was full %d times, and another process had locked the file %d times.\n",
		both(Crash), both(Terminate), both(Cut), both(ReadOnly), both(DiskFull), both(Hog))
	t.each(&b, "Misbehaviour of plugins, times on SQLite + on Postgres", func(name string) bool {
		return strings.HasPrefix(name, modePrefix)
	})
	t.each(&b, "Failpoints, times on SQLite + on Postgres", func(name string) bool {
		return strings.HasPrefix(name, "at ")
	})
	t.commits(&b)
	for _, s := range t.Soaks {
		p("\nSoak on %s, one daemon that worked %d items in %.0f minutes:\n\n| | early | late | most | |\n|---|---:|---:|---:|---|\n",
			s.Database, s.Items, s.Minutes)
		for _, g := range s.Gauges {
			p("| %s | %.1f | %.1f | %.1f | %s |\n", g.Name, g.Early, g.Late, g.Most, g.trend())
		}
	}
	p("\n")
	return b.String()
}

// commits lists the number of histories by commit and fault.
func (t *Totals) commits(b *strings.Builder) {
	counts := map[string]map[Fault]int{}
	for _, s := range t.Runs {
		if counts[s.Commit] == nil {
			counts[s.Commit] = map[Fault]int{}
		}
		counts[s.Commit][s.Fault] += s.Counted
	}
	b.WriteString("\nHistories by commit:\n\n| commit | histories |\n|---|---|\n")
	for _, commit := range slices.Sorted(maps.Keys(counts)) {
		var list []string
		for _, fault := range slices.Sorted(maps.Keys(counts[commit])) {
			list = append(list, fmt.Sprintf("%s %d", fault, counts[commit][fault]))
		}
		fmt.Fprintf(b, "| %s | %s |\n", commit, strings.Join(list, ", "))
	}
}

// each lists how often the faults with these names happened on each database.
func (t *Totals) each(b *strings.Builder, title string, take func(string) bool) {
	counts := map[string]*[2]int{}
	for _, s := range t.Runs {
		for name, n := range s.Faults {
			if take(name) {
				if counts[name] == nil {
					counts[name] = &[2]int{}
				}
				counts[name][map[Database]int{SQLite: 0, Postgres: 1}[s.Database]] += n
			}
		}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s %d + %d", strings.TrimPrefix(strings.TrimPrefix(name, "at "), modePrefix),
			counts[name][0], counts[name][1]))
	}
	fmt.Fprintf(b, "\n%s: %s.\n", title, strings.Join(list, ", "))
}
