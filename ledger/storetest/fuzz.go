package storetest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// values are the texts and bytes of an item and its end that callers choose freely.
type values struct {
	scope, key, fingerprint, source, shard string
	payload                                []byte
	worker, code, err, log                 string
	output                                 []byte
}

// FuzzValues: a store keeps any value byte for byte and finds it again by any part, or refuses it. Both as the store
// in memory does.
func FuzzValues(f *testing.F, open Open) {
	for _, s := range []string{"", "a", "\x00", "\xff\xfe", "é%_\\", "a'b\"c$1", "1e400",
		"{\"n\":123456789012345678901234567890}", "\u2028\U0001f600", "%s%d", "--", "\r\n\t", "\ufffd"} {
		f.Add(s, "k"+s, s, s, s, []byte(s), s, "c", s, s, []byte(s))
	}
	f.Add("s", string(bytes.Repeat([]byte("k"), 2049)), "", "", "", bytes.Repeat([]byte("[["), 20_000), "", "c_1",
		string(bytes.Repeat([]byte("é"), 5000)), string(bytes.Repeat([]byte("é\xff"), 9000)), []byte{0})
	c := &clock{t: start}
	l := [2]*ledger.Ledger{
		ledger.New(memory.New(memory.Options{Now: c.now}), chanceless), ledger.New(open(f, c.now), chanceless)}
	f.Fuzz(func(t *testing.T, scope, key, fingerprint, source, shard string, payload []byte, worker, code, text,
		log string, output []byte) {
		v := values{scope, key, fingerprint, source, shard, payload, worker, code, text, log, output}
		var got [2][]string
		for i := range l {
			got[i] = v.pass(t, l[i])
		}
		if d := cmp.Diff(got[0], got[1]); d != "" {
			t.Fatalf("(-memory +store):\n%s", d)
		}
	})
}

// pass adds, claims and ends an item with the values and returns all answers, without ids and tokens.
func (v values) pass(t *testing.T, l *ledger.Ledger) (told []string) {
	tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	ctx := t.Context()
	added, err := l.Add(ctx, ledger.NewItem{Kind: "k", Scope: v.scope, Key: v.key, Fingerprint: v.fingerprint,
		Payload: v.payload, ShardKey: v.shard, Source: v.source})
	if tell("add: %s", reason(err)); err != nil {
		return told
	}
	id := added[0].ID
	defer func() { // the next input starts with an empty ledger
		must.Do(t)(l.ForceRelease(ctx, "op", ledger.IDs(id)))
		must.Do(t)(l.Cancel(ctx, "op", ledger.IDs(id)))
		if n, left, err := l.Forget(ctx, "op", ledger.Filter{}); n != 1 || left != 0 || err != nil {
			t.Fatal(n, left, err)
		}
	}()
	it, err := l.Find(ctx, "k", v.scope, v.key)
	if err != nil || it.Key != v.key || it.Scope != v.scope || it.Source != v.source ||
		!bytes.Equal(it.Payload, v.payload) {
		t.Fatalf("found %+v, %v", it, err)
	}
	tell("%+v", plainItem(it))
	leases, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 2})
	if err != nil || len(leases) != 1 || !bytes.Equal(leases[0].Payload, v.payload) {
		t.Fatalf("claimed %+v, %v", leases, err)
	}
	e := []ledger.Ending{{Lease: leases[0], Result: ledger.Result{Outcome: ledger.OutcomeFailed, Output: v.output,
		Code: v.code, Error: v.err, Log: v.log, Worker: v.worker}}}
	err = l.Finish(ctx, e...)[0]
	tell("finish: %s %s %s", reason(err), e[0].Recorded, e[0].State)
	as, err := l.Attempts(ctx, id)
	must.OK(t, err)
	for i := range as {
		if !bytes.Equal(as[i].Output, v.output) {
			t.Errorf("output %q came back as %q", v.output, as[i].Output)
		}
		blur(&as[i])
		tell("%+v", as[i])
	}
	for _, f := range []ledger.Filter{{Key: v.key}, {Prefix: v.key[:len(v.key)/2]}, {KeyHas: v.key[len(v.key)/3:]},
		{ErrorHas: v.err[:len(v.err)/2]}, {Scopes: []string{v.scope}}, {Codes: []string{v.code}},
		{Agents: []string{v.source}}, {KeyHas: v.source}} {
		n, err := l.Count(ctx, f)
		tell("%+v: %d %s", f, n, reason(err))
	}
	return told
}
