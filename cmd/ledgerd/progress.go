package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
)

// progress is where a run or a worker is.
type progress struct {
	Total   int64 `json:"total"` // inputs known so far; of a worker 0
	Ended   int64 `json:"ended"`
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`  // for good: dead or in doubt
	Failing int64 `json:"failing"` // attempts that failed
	// Item is the one of which the plugin spoke last, nil if none lately.
	Item *itemProgress `json:"item,omitempty"`
	// Waits says whom it waits for, with nothing to do itself; "" if it works.
	Waits string `json:"waits,omitempty"`

	attempts int64 // that ended
}

// itemProgress is how far one item is, as its plugin says.
type itemProgress struct {
	ID    int64  `json:"id"`
	Key   string `json:"key"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: not known
	Unit  string `json:"unit"`
}

// String is "big.csv 42 %".
func (p *itemProgress) String() string {
	if p == nil {
		return ""
	}
	name := report.Safe(path.Base(p.Key))
	if p.Total > 0 {
		return fmt.Sprintf("%s %d %%", name, 100*min(p.Done, p.Total)/p.Total)
	}
	return fmt.Sprintf("%s %s %s", name, report.Count(p.Done), p.Unit)
}

// nowAt is what a plugin said last about an item that it has.
type nowAt struct {
	mu   sync.Mutex
	last itemProgress
	at   time.Time
}

// lately is how long a word of a plugin is news.
const lately = 5 * time.Second

func (n *nowAt) set(p pluginhost.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.at = itemProgress{p.ItemID, p.Key, p.Done, p.Total, p.Unit}, time.Now()
}

func (n *nowAt) item() *itemProgress {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) > lately {
		return nil
	}
	last := n.last
	return &last
}

const usualWidth = 80 // of a terminal that does not tell

// how often progress is shown.
const (
	barEvery   = 200 * time.Millisecond
	jsonEvery  = time.Second
	plainEvery = 10 * time.Second
)

// shower shows progress on stderr until it is stopped.
type shower struct {
	end  chan struct{}
	done chan struct{}
}

// startProgress shows what look returns, as --progress says.
func (a *app) startProgress(look func() progress) *shower {
	how := a.progress.value
	if how == "auto" {
		how = "plain"
		if isTerminal(a.stderr) {
			how = "bar"
		}
	}
	if a.quiet {
		how = "off"
	}
	s := &shower{end: make(chan struct{}), done: make(chan struct{})}
	began := time.Now()
	switch how {
	case "bar":
		bar, description := a.bar(cmp.Or(terminalWidth(a.stderr), usualWidth))
		waits, told := "", time.Time{}
		go s.loop(barEvery, func() {
			p := look()
			if p.Waits != "" && p.Waits != waits && time.Since(told) >= plainEvery { // too long for the line of the bar
				_ = bar.Clear()
				fmt.Fprintln(a.stderr, p.Waits)
				waits, told = p.Waits, time.Now()
			}
			showBar(bar, description, p)
		}, func() { _ = bar.Finish() })
	case "json":
		e := json.NewEncoder(report.JSONLines(a.stderr))
		go s.loop(jsonEvery, func() { _ = e.Encode(newProgressLine(look(), time.Since(began))) }, func() {})
	case "plain":
		go s.loop(plainEvery, func() { fmt.Fprintln(a.stderr, plainLine(look(), time.Since(began))) }, func() {})
	default:
		close(s.done)
	}
	return s
}

func (s *shower) loop(every time.Duration, show, clear func()) {
	defer close(s.done)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			show()
		case <-s.end:
			clear()
			return
		}
	}
}

// stop ends the showing; the line is free then.
func (s *shower) stop() {
	close(s.end)
	<-s.done
}

// sayStopping tells who pressed Ctrl-C what happens now, below the bar if there is one.
func (a *app) sayStopping() {
	if a.quiet {
		return
	}
	if isTerminal(a.stderr) {
		fmt.Fprintln(a.stderr)
	}
	fmt.Fprintln(a.stderr, "finishing what runs; once more to stop now")
}

// Beside the bar and its description a line has up to barNumbers cells: per cent, counts to a million, and times.
// The rate of items takes barRate more.
const (
	barNumbers = 48
	barRate    = 16
)

// bar makes a progress bar of which a line fits into width cells, and says how long its description may be.
func (a *app) bar(width int) (bar *progressbar.ProgressBar, description int) {
	options := []progressbar.Option{
		progressbar.OptionSetWriter(a.stderr), progressbar.OptionThrottle(barEvery / 2), progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(a.colored())}
	room := width - barNumbers
	if room > 2*barRate {
		options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString("items"))
		room -= barRate
	}
	length := min(max(room/2, 3), 24)
	return progressbar.NewOptions64(-1, append(options, progressbar.OptionSetWidth(length))...), max(room-length, 0)
}

func showBar(bar *progressbar.ProgressBar, description int, p progress) {
	if p.Total > 0 {
		bar.ChangeMax64(p.Total)
	}
	text := p.Item.String()
	if n := max(p.Failing, p.Failed); n > 0 {
		text = strings.TrimSpace(plural(n, "failure") + "  " + text)
	}
	bar.Describe(report.Cut(text, description))
	_ = bar.Set64(min(p.position(), max(p.Total-1, 0))) // at the maximum it would finish
}

// position is how far it is: inputs that ended, or of a worker, attempts.
func (p progress) position() int64 {
	if p.Total > 0 {
		return p.Ended
	}
	return p.attempts
}

type progressLine struct {
	Type string `json:"type"`
	progress
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
}

func newProgressLine(p progress, d time.Duration) progressLine {
	s := max(d.Seconds(), 0.001)
	return progressLine{"progress", p, float64(int64(s*10)) / 10, float64(int64(float64(p.attempts)/s*10)) / 10}
}

func plainLine(p progress, d time.Duration) string {
	line := fmt.Sprintf("[%s] ", d.Round(time.Second))
	if p.Total > 0 {
		line += fmt.Sprintf("%s of %s ended", report.Count(p.Ended), report.Count(p.Total))
	} else {
		line += report.Count(p.attempts) + " ended"
	}
	if n := max(p.Failing, p.Failed); n > 0 {
		line += ", " + plural(n, "failure")
	}
	line += fmt.Sprintf(", %.0f/s", float64(p.attempts)/max(d.Seconds(), 0.001))
	return line + prefixed("   ", p.Item.String()) + prefixed("   ", p.Waits)
}
