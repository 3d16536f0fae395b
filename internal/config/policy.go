package config

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/ledgerd/ledgerd/ledger"
)

// policyFields are the keys of a kind that are policy, with their fields in the ledger. Input is not among them: the
// plugin knows it better.
var policyFields = map[string]func(*ledger.Kind) any{
	"plugin":                    func(k *ledger.Kind) any { return &k.Plugin },
	"timeout":                   func(k *ledger.Kind) any { return &k.Timeout },
	"max_failures":              func(k *ledger.Kind) any { return &k.MaxFailures },
	"max_crashes":               func(k *ledger.Kind) any { return &k.MaxCrashes },
	"max_lost":                  func(k *ledger.Kind) any { return &k.MaxLost },
	"backoff_base":              func(k *ledger.Kind) any { return &k.Backoff.Base },
	"backoff_cap":               func(k *ledger.Kind) any { return &k.Backoff.Cap },
	"on_lost":                   func(k *ledger.Kind) any { return &k.OnLost },
	"keep":                      func(k *ledger.Kind) any { return &k.Keep },
	"paused":                    func(k *ledger.Kind) any { return &k.Paused },
	"max_running":               func(k *ledger.Kind) any { return &k.Limits.MaxRunning },
	"max_running_per_shard_key": func(k *ledger.Kind) any { return &k.Limits.MaxRunningPerShardKey },
	"rate":                      func(k *ledger.Kind) any { return &k.Limits.Rate },
	"rate_per_shard_key":        func(k *ledger.Kind) any { return &k.Limits.RatePerShardKey },
	"burst":                     func(k *ledger.Kind) any { return &k.Limits.Burst },
}

// Policy overrides the ledger's policy of a kind with that of the configuration.
func (k *Kind) Policy(have *ledger.Kind) {
	k.eachPolicy(have, func(_ key, want, at reflect.Value) { at.Set(want) })
	if have.OnLost == ledger.OnLostRepeat { // the ledger stores it as ""
		have.OnLost = ""
	}
}

// eachPolicy calls do for every given key of the policy, with its value and the field of the ledger.
func (k *Kind) eachPolicy(have *ledger.Kind, do func(k key, want, at reflect.Value)) {
	v := reflect.ValueOf(k).Elem()
	for _, key := range keys(v.Type()) {
		field, is := policyFields[key.name]
		if given := v.Field(key.field); is && !given.IsNil() {
			at := reflect.ValueOf(field(have)).Elem()
			do(key, given.Elem().Convert(at.Type()), at)
		}
	}
}

// Since returns the part of the policy that the configuration sets now and did not set in before. before may be nil.
func (k *Kind) Since(before *Kind) *Kind {
	if before == nil {
		return k
	}
	news := &Kind{}
	old, now, to := reflect.ValueOf(before).Elem(), reflect.ValueOf(k).Elem(), reflect.ValueOf(news).Elem()
	for _, key := range keys(now.Type()) {
		if _, is := policyFields[key.name]; is && !reflect.DeepEqual(old.Field(key.field).Interface(),
			now.Field(key.field).Interface()) {
			to.Field(key.field).Set(now.Field(key.field))
		}
	}
	return news
}

// PolicyDifference is a value of a policy that differs between the ledger and the configuration.
type PolicyDifference struct {
	Key        string // "max_failures"
	Have, Want string
	Origin     Origin // of Want
}

// String is "max_failures: 9 → 2 (ledgerd.toml:12)".
func (d PolicyDifference) String() string {
	return d.Key + ": " + d.Have + " → " + d.Want + " (" + d.Origin.String() + ")"
}

// PolicyDifferences compares asked, a Kind of this configuration or a part of one, with the ledger's policy.
func (c *Config) PolicyDifferences(asked *Kind, have ledger.Kind) (all []PolicyDifference) {
	want := have
	asked.Policy(&want)
	asked.eachPolicy(&have, func(k key, _, at reflect.Value) {
		wanted := reflect.ValueOf(policyFields[k.name](&want)).Elem()
		if at.Interface() == wanted.Interface() {
			return
		}
		all = append(all, PolicyDifference{Key: k.name, Have: policyValue(k, at), Want: policyValue(k, wanted),
			Origin: c.Origin(joinPath(joinPath("kinds", have.Name), k.name))})
	})
	return all
}

// PolicyWarnings warns of values of policies in the ledger, with these kinds, that differ from the configuration, at
// the places of the keys.
func (c *Config) PolicyWarnings(kinds []ledger.Kind) (all []Problem) {
	for _, k := range kinds {
		for _, d := range c.PolicyDifferences(c.Kind(k.Name), k) {
			path := joinPath(joinPath("kinds", k.Name), d.Key)
			all = append(all, c.problem(path, &ledger.Error{
				Message: fmt.Sprintf("is %s in the ledger, and %s here", d.Have, d.Want),
				Hint: "the next command that adds to the kind or works it with this config, and the next start of a daemon, " +
					"set it"}))
		}
	}
	return all
}

// policyValue formats a value of the ledger as in a file.
func policyValue(k key, v reflect.Value) string {
	switch {
	case k.name == "on_lost" && v.IsZero():
		v = reflect.ValueOf(string(ledger.OnLostRepeat))
	case v.IsZero() && k.scalar().Kind() != reflect.Bool:
		return "not set"
	}
	text := fmt.Sprint(written(k, v.Convert(k.scalar())))
	if k.scalar().Kind() == reflect.String {
		return strconv.Quote(text)
	}
	return text
}
