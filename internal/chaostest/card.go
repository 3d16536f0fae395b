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

// figures are the rows of the table, in its order.
var figures = []struct {
	name   string
	figure func(*Total) int
}{
	{"histories that counted, judged by both checkers", func(s *Total) int { return s.Counted }},
	{"of these over HTTP", func(s *Total) int {
		if s.Fault.remote() {
			return s.Counted
		}
		return 0
	}},
	{"histories that were void", func(s *Total) int { return s.Void }},
	{"daemons killed with SIGKILL, at any moment", happened(Kill, Clock)},
	{"daemons that died or froze at a failpoint", happenedAs(pointPrefix)},
	{"pauses longer than the lease", happened(Pause)},
	{"over HTTP: workers and servers killed", happened(RemoteKill)},
	{"over HTTP: pauses of workers and servers longer than the lease", happened(RemotePause)},
	{"over HTTP: connections cut or frozen", happened(RemoteCut)},
	{"agents over MCP killed, frozen or ended", happened(Agents)},
	{"database faults", happened(DiskFull, Hog, Crash, Terminate, Cut, ReadOnly)},
	{"failovers to a synchronous standby", happened(Failover)},
	{"plugins that misbehaved", happenedAs(modePrefix)},
	{"calls recorded", func(s *Total) int { return s.Calls }},
	{"calls whose outcome the caller did not learn", func(s *Total) int { return s.Unanswered }},
	{"items completed", func(s *Total) int { return s.Completed }},
	{"attempts interrupted by a fault", func(s *Total) int { return s.Hit }},
	{"effects that were repeated after an interruption", func(s *Total) int { return s.Repeated }},
	{"items that the second checker left out: the outcome of a call is unknown", func(s *Total) int { return s.Unclear }},
	{"**promises broken**", func(s *Total) int { return s.Violations }},
}

// happened returns the figure of how often these faults happened.
func happened(faults ...Fault) func(*Total) int {
	return func(s *Total) (n int) {
		for _, f := range faults {
			n += s.Faults[string(f)]
		}
		return n
	}
}

// happenedAs returns the figure of how often faults happened whose names have a prefix.
func happenedAs(prefix string) func(*Total) int {
	return func(s *Total) (n int) {
		for name, count := range s.Faults {
			if strings.HasPrefix(name, prefix) {
				n += count
			}
		}
		return n
	}
}

// sum adds up a figure over all rows of each database.
func (t *Totals) sum(figure func(*Total) int) (sqlite, postgres int) {
	for _, s := range t.Runs {
		if s.Database == SQLite {
			sqlite += figure(s)
		} else {
			postgres += figure(s)
		}
	}
	return sqlite, postgres
}

// card returns the figures as Markdown.
func (t *Totals) card() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("\n| | SQLite | Postgres | together |\n|---|---:|---:|---:|\n")
	for _, f := range figures {
		sqlite, postgres := t.sum(f.figure)
		p("| %s | %d | %d | **%d** |\n", f.name, sqlite, postgres, sqlite+postgres)
	}
	kills := &Total{Recovered: map[int]int{}}
	recovered := 0
	overtaken := map[Database]float64{}
	for _, s := range t.Runs {
		overtaken[s.Database] = max(overtaken[s.Database], s.Overtaking)
		if s.Fault == Kill {
			for tenths, n := range s.Recovered {
				kills.Recovered[tenths] += n
				recovered += n
			}
		}
	}
	p("\nTime from the kill of a worker until one of its items was free again (lease of 5 s, %d items): p50 %.1f s, "+
		"p99 %.1f s, longest %.1f s. The promise of 5 s after the lease holds while another worker runs. In some of these "+
		"runs the killed worker was the only one, and the next one had to start first.\n",
		recovered, kills.quantile(.5), kills.quantile(.99), kills.quantile(1))
	p("\nThe longest time that an item waited while items that were due later were claimed: %.1f s on SQLite, "+
		"%.1f s on Postgres.\n", overtaken[SQLite], overtaken[Postgres])
	times := func(f Fault) int {
		sqlite, postgres := t.sum(happened(f))
		return sqlite + postgres
	}
	p("\nDatabase faults: %d crashes of the server, %d connections terminated, %d cut at a commit; the server was read-only %d times, "+
		"the disk was full %d times, and another process had locked the file %d times.\n",
		times(Crash), times(Terminate), times(Cut), times(ReadOnly), times(DiskFull), times(Hog))
	p("\nMisbehaviour of plugins, times on SQLite + on Postgres: %s.\n", t.each(modePrefix))
	p("\nFailpoints, times on SQLite + on Postgres: %s.\n", t.each(pointPrefix))
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

// each lists how often each fault whose name has a prefix happened, on SQLite + on Postgres.
func (t *Totals) each(prefix string) string {
	names := map[string]bool{}
	for _, s := range t.Runs {
		for name := range s.Faults {
			if strings.HasPrefix(name, prefix) {
				names[name] = true
			}
		}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		sqlite, postgres := t.sum(happened(Fault(name)))
		list = append(list, fmt.Sprintf("%s %d + %d", strings.TrimPrefix(name, prefix), sqlite, postgres))
	}
	return strings.Join(list, ", ")
}
