package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
)

// goBenchmark runs one benchmark of a package's test program, in the package's folder, and gives
// its figure of a unit.
func (s *suite) goBenchmark(ctx context.Context, pkg, name, unit string) (float64, error) {
	var pattern []string
	for part := range strings.SplitSeq(name, "/") {
		pattern = append(pattern, "^"+part+"$")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.Programs, pkg+".test"), "-test.run", "^$", "-test.bench",
		strings.Join(pattern, "/"))
	cmd.Dir = filepath.Join("..", "plugins", pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		for i, f := range fields {
			if i > 0 && f == unit && strings.HasPrefix(fields[0], name) {
				return strconv.ParseFloat(fields[i-1], 64)
			}
		}
	}
	return 0, fmt.Errorf("%s printed no figure in %s:\n%s", name, unit, out)
}

func (s *suite) filecsv() measure.Scenario {
	sc := measure.Scenario{
		Name: "filecsv", Title: "filecsv", OneIn: 2,
		About: "The plugin on a file of 300,000 rows, and a bare loop of encoding/csv with ReuseRecord over the same " +
			"file; with a quoted field in each row, and without.",
		Metrics: []measure.Metric{{Name: "read", Unit: "MB/s"}},
	}
	for _, b := range []struct{ side, name string }{
		{"filecsv", "plugin/quoted=false"}, {"encoding/csv", "encoding_csv/quoted=false"},
		{"filecsv, quoted", "plugin/quoted=true"}, {"encoding/csv, quoted", "encoding_csv/quoted=true"},
	} {
		sc.Sides = append(sc.Sides, measure.Side{Name: b.side, Run: func(ctx context.Context) (measure.Sample, error) {
			v, err := s.goBenchmark(ctx, "filecsv", "BenchmarkFile/"+b.name, "MB/s")
			return measure.Sample{"read": v}, err
		}})
	}
	sc.Targets = []measure.Target{
		{Text: "filecsv, to a bare encoding/csv loop", Metric: "read", Side: "filecsv", Of: []string{"encoding/csv"},
			Min: 0.7},
		{Text: "filecsv, quoted, to a bare encoding/csv loop", Metric: "read", Side: "filecsv, quoted",
			Of: []string{"encoding/csv, quoted"}, Min: 0.75, Aim: 0.9},
	}
	return sc
}

func (s *suite) urlcheck() measure.Scenario {
	sc := measure.Scenario{
		Name: "urlcheck", Title: "urlcheck", OneIn: 3,
		About:   "Checks of one local server, 64 at a time; what the server takes is in the figure.",
		Metrics: []measure.Metric{{Name: "checks", Unit: "/s"}},
		Targets: []measure.Target{{Text: "urlcheck, HTTP, checks/s against a local server", Metric: "checks", Side: "http1",
			Min: 5000}},
	}
	for _, protocol := range []string{"http1", "https", "http2"} {
		sc.Sides = append(sc.Sides, measure.Side{Name: protocol, Run: func(ctx context.Context) (measure.Sample, error) {
			v, err := s.goBenchmark(ctx, "urlcheck", "BenchmarkCheck/"+protocol, "checks/s")
			return measure.Sample{"checks": v}, err
		}})
	}
	return sc
}
