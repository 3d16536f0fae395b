package kinds

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// TestIntroduceSecrets: the ledger learns which fields of the payload a plugin marks as secret, also of a kind that it
// knew before, and again when the plugin has changed.
func TestIntroduceSecrets(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	must.OK(t, l.SetKind(t.Context(), "ann", ledger.Kind{Name: "mail", MaxFailures: 3}))
	lc := NewLocal(nil)
	for _, c := range []struct {
		schema string
		want   []string
	}{
		{`{"type":"object","properties":{"to":{"type":"string"}}}`, nil},
		{`{"type":"object","properties":{"to":{"type":"string"},"code":{"type":"string","writeOnly":true}}}`, []string{"code"}},
		{`{"type":"object","properties":{"code":{"type":"string"}}}`, nil},
	} {
		schema, err := settings.Compile([]byte(c.schema))
		must.OK(t, err)
		policy, err := l.Kind(t.Context(), "mail")
		must.OK(t, err)
		k := &Kind{Name: "mail", Policy: policy, Known: true, Config: lc.Config.Kind("mail"), Schema: schema,
			Plugin: &Plugin{Description: &pluginhost.Description{Name: "mail", Payload: schema}}}
		must.OK(t, lc.Introduce(t.Context(), l, k))
		if policy, err = l.Kind(t.Context(), "mail"); err != nil || !slices.Equal(policy.Input.Secret, c.want) ||
			policy.MaxFailures != 3 {
			t.Errorf("%s: %+v, %v", c.schema, policy, err)
		}
	}
}

// TestRememberNoSecrets: everybody may read the policy of a kind, so it keeps no values of secret fields.
func TestRememberNoSecrets(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	must.OK(t, l.SetKind(t.Context(), "ann", ledger.Kind{Name: "mail"}))
	schema, err := settings.Compile([]byte(`{"type":"object","properties":{"to":{"type":"string"},"code":{"type":"string",` +
		`"writeOnly":true}}}`))
	must.OK(t, err)
	k := &Kind{Name: "mail", Policy: ledger.Kind{Name: "mail"}, Schema: schema}
	_, err = k.Remember(t.Context(), l, []string{"to=ann", "code=1234"})
	must.OK(t, err)
	policy, err := l.Kind(t.Context(), "mail")
	if kept := policy.Defaults.Flat(); err != nil || len(kept) != 1 || string(kept["to"].Value) != `"ann"` {
		t.Errorf("%v, %v", kept, err)
	}
}
