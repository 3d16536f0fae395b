package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Size is a number of bytes; 0 means no limit.
type Size int64

// ParseSize reads "512MiB", "2GB", "1048576", and "0" for no limit.
func ParseSize(text string) (Size, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<60 {
		return 0, fmt.Errorf("must be a size such as \"512MiB\" or \"2GB\", not %q", text)
	}
	return Size(n), nil
}

// String returns the size in the form of a file.
func (s Size) String() string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if whole := Size(1) << (30 - 10*i); s > 0 && s%whole == 0 {
			return strconv.FormatInt(int64(s/whole), 10) + unit
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// ParseShard reads "i/n", from 0.
func ParseShard(text string) (scheduler.Shard, error) {
	i, n, found := strings.Cut(text, "/")
	index, err1 := strconv.Atoi(i)
	count, err2 := strconv.Atoi(n)
	if !found || err1 != nil || err2 != nil || count < 1 || count > scheduler.Slots || index < 0 || index >= count {
		return scheduler.Shard{}, fmt.Errorf("must be i/n with 0 ≤ i < n ≤ %d such as \"0/4\", not %q", scheduler.Slots, text)
	}
	return scheduler.Shard{Index: index, Count: count}, nil
}

// forever is the text for a time without end.
const forever = "forever"

// FormatDuration writes a duration as people do: "1m" and not "1m0s", or "forever".
func FormatDuration(d time.Duration) string {
	if d == ledger.KeepForever {
		return forever
	}
	return settings.FormatDuration(d)
}

// minInterval is the shortest time between two reads of a source.
const minInterval = time.Second

// Next returns the first time after t at which the source is read. Intervals count from 1970-01-01 UTC; for hour, day,
// week and cron fields see recurrence.Rule.
func (s *Source) Next(t time.Time) time.Time {
	if interval, err := recurrence.ParseDuration(s.Schedule); err == nil && interval < recurrence.Min {
		at := t.UnixMicro()
		step := interval.Microseconds()
		return time.UnixMicro(at - (at%step+step)%step + step).UTC()
	}
	every, err := recurrence.Parse(s.Schedule, s.Zone)
	if err != nil { // not reached: Load refuses it
		panic("config: " + err.Error())
	}
	return every.Next(every.Start(t), t)
}
