package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
)

const usualWidth = 80 // cells, of a terminal whose width is not known

// How often each form of --progress is shown.
const (
	barEvery   = 200 * time.Millisecond
	jsonEvery  = time.Second
	plainEvery = 10 * time.Second
)

// progressDisplay shows progress on stderr until it is stopped.
type progressDisplay struct {
	end  chan struct{}
	done chan struct{}
}

// StartProgress shows the progress that look returns, in the form of --progress.
func (a *App) StartProgress(look func() runner.Progress) *progressDisplay {
	how := a.Progress.Value
	if how == "auto" {
		how = "plain"
		if IsTerminal(a.Stderr) {
			how = "bar"
		}
	}
	if a.Quiet {
		how = "off"
	}
	s := &progressDisplay{end: make(chan struct{}), done: make(chan struct{})}
	began := time.Now()
	switch how {
	case "bar":
		bar, textWidth := a.bar(cmp.Or(terminalWidth(a.Stderr), usualWidth))
		waits, printed := "", time.Time{} // the last line about what it waits for
		go s.loop(barEvery, func() {
			p := look()
			if p.Waits != "" && p.Waits != waits && time.Since(printed) >= plainEvery { // too long for the line of the bar
				_ = bar.Clear()
				fmt.Fprintln(a.Stderr, p.Waits)
				waits, printed = p.Waits, time.Now()
			}
			showBar(bar, textWidth, p)
		}, func() { _ = bar.Finish() })
	case "json":
		e := json.NewEncoder(report.JSONLines(a.Stderr))
		go s.loop(jsonEvery, func() { _ = e.Encode(newProgressLine(look(), time.Since(began))) }, func() {})
	case "plain":
		go s.loop(plainEvery, func() { fmt.Fprintln(a.Stderr, plainLine(look(), time.Since(began))) }, func() {})
	default:
		close(s.done)
	}
	return s
}

func (s *progressDisplay) loop(every time.Duration, show, finish func()) {
	defer close(s.done)
	t := time.Tick(every)
	for {
		select {
		case <-t:
			show()
		case <-s.end:
			finish()
			return
		}
	}
}

// Stop ends the display and clears the line of the bar.
func (s *progressDisplay) Stop() {
	close(s.end)
	<-s.done
}

// SayStopping explains, after the first Ctrl-C, what happens now. On a terminal it begins a new line below the bar.
func (a *App) SayStopping() {
	if a.Quiet {
		return
	}
	if IsTerminal(a.Stderr) {
		fmt.Fprintln(a.Stderr)
	}
	fmt.Fprintln(a.Stderr, "finishing what runs; once more to stop now")
}

// Beside the bar and its description a line has up to barNumbers cells: per cent, counts to a million, and times.
// The rate of items takes barRate more.
const (
	barNumbers = 48
	barRate    = 16
)

// bar makes a progress bar for a line of width cells. textWidth is how many cells its description may take.
func (a *App) bar(width int) (bar *progressbar.ProgressBar, textWidth int) {
	options := []progressbar.Option{
		progressbar.OptionSetWriter(a.Stderr), progressbar.OptionThrottle(barEvery / 2), progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(a.colored())}
	room := width - barNumbers
	if room > 2*barRate {
		options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString("items"))
		room -= barRate
	}
	length := min(max(room/2, 3), 24)
	return progressbar.NewOptions64(-1, append(options, progressbar.OptionSetWidth(length))...), max(room-length, 0)
}

// showBar updates the bar. With the number of its maximum it would end, so it stays one below.
func showBar(bar *progressbar.ProgressBar, textWidth int, p runner.Progress) {
	if p.Total > 0 {
		bar.ChangeMax64(p.Total)
	}
	text := p.Item.String()
	if n := max(p.Failing, p.Failed); n > 0 {
		text = strings.TrimSpace(report.Plural(n, "failure") + "  " + text)
	}
	bar.Describe(report.Cut(text, textWidth))
	_ = bar.Set64(min(p.Position(), max(p.Total-1, 0)))
}

// progressLine is a line of --progress json.
type progressLine struct {
	Type string `json:"type"`
	runner.Progress
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
}

func newProgressLine(p runner.Progress, d time.Duration) progressLine {
	s := max(d.Seconds(), 0.001)
	return progressLine{"progress", p, float64(int64(s*10)) / 10, float64(int64(float64(p.Attempts)/s*10)) / 10}
}

// plainLine returns a line of --progress plain: "[20s] 120 of 500 ended, 2 failures, 6/s".
func plainLine(p runner.Progress, d time.Duration) string {
	line := fmt.Sprintf("[%s] ", d.Round(time.Second))
	if p.Total > 0 {
		line += fmt.Sprintf("%s of %s ended", report.Count(p.Ended), report.Count(p.Total))
	} else {
		line += report.Count(p.Attempts) + " ended"
	}
	if n := max(p.Failing, p.Failed); n > 0 {
		line += ", " + report.Plural(n, "failure")
	}
	line += fmt.Sprintf(", %.0f/s", float64(p.Attempts)/max(d.Seconds(), 0.001))
	return line + report.Prefixed("   ", p.Item.String()) + report.Prefixed("   ", p.Waits)
}
