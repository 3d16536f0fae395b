package answer

import (
	"cmp"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// Kind is the policy of a kind; times are numbers of seconds, defaults are filled in.
type Kind struct {
	Kind        string   `json:"kind"`
	Plugin      string   `json:"plugin"`
	Input       string   `json:"input"`
	InputField  string   `json:"input_field"`
	Match       []string `json:"match"`
	OnLost      string   `json:"on_lost" oneof:"repeat|doubt"`
	MaxFailures int      `json:"max_failures"`
	MaxCrashes  int      `json:"max_crashes"`
	MaxLost     int      `json:"max_lost"`
	BackoffBase float64  `json:"backoff_base_s"`
	BackoffCap  float64  `json:"backoff_cap_s"`
	Timeout     float64  `json:"timeout_s"`
	Keep        *float64 `json:"keep_s"`
	MaxRunning  int      `json:"max_running"`
	PerKey      int      `json:"max_running_per_shard_key"`
	Rate        string   `json:"rate"`
	RatePerKey  string   `json:"rate_per_shard_key"`
	Burst       int      `json:"burst"`
	Limits      string   `json:"limits"`
	Paused      bool     `json:"paused"`
	Definition  string   `json:"definition"`
}

// NewKind makes one.
func NewKind(k ledger.Kind) Kind {
	k = k.WithDefaults()
	row := Kind{Kind: k.Name, Plugin: k.Plugin, Input: k.Input.Type, InputField: k.Input.Field,
		Match: report.OrEmpty(k.Input.Match), OnLost: string(k.OnLost),
		MaxFailures: k.MaxFailures, MaxCrashes: k.MaxCrashes, MaxLost: k.MaxLost,
		BackoffBase: k.Backoff.Base.Seconds(), BackoffCap: k.Backoff.Cap.Seconds(), Timeout: k.Timeout.Seconds(),
		MaxRunning: k.Limits.MaxRunning, PerKey: k.Limits.MaxRunningPerShardKey, Rate: k.Limits.Rate.String(),
		RatePerKey: k.Limits.RatePerShardKey.String(), Burst: k.Limits.Burst,
		Paused: k.Paused, Definition: k.Definition}
	if k.Limits.Any() {
		row.Limits = k.Limits.String()
	}
	row.Input = cmp.Or(row.Input, "line")
	if k.Keep != ledger.KeepForever {
		keep := k.Keep.Seconds()
		row.Keep = &keep
	}
	return row
}

// KindChange is a change of the policy of a kind. Fields that are missing stay as they are.
type KindChange struct {
	OnLost      *string  `json:"on_lost,omitempty" oneof:"repeat|doubt"`
	MaxFailures *int     `json:"max_failures,omitempty"`
	MaxCrashes  *int     `json:"max_crashes,omitempty"`
	MaxLost     *int     `json:"max_lost,omitempty"`
	BackoffBase *float64 `json:"backoff_base_s,omitempty"`
	BackoffCap  *float64 `json:"backoff_cap_s,omitempty"`
	Timeout     *float64 `json:"timeout_s,omitempty"`
	Keep        *float64 `json:"keep_s,omitempty"`
	KeepForever bool     `json:"keep_forever,omitempty"`
	MaxRunning  *int     `json:"max_running,omitempty"`
	PerKey      *int     `json:"max_running_per_shard_key,omitempty"`
	Rate        *string  `json:"rate,omitempty"`
	RatePerKey  *string  `json:"rate_per_shard_key,omitempty"`
	Burst       *int     `json:"burst,omitempty"`
}

// Pause is whether a kind is paused.
type Pause struct {
	Paused bool   `json:"paused"`
	Reason string `json:"reason,omitempty"` // for the journal
}
