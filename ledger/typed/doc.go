// Package typed adds and handles items of which the payload is a Go type.
//
//	var Welcome = typed.Kind[Mail]{Name: "welcome", Key: func(m Mail) string { return m.To }}
//
//	Welcome.AddTx(ctx, l, tx, Mail{To: "ada@example.com"})                // the payload is JSON
//	worker.Config{Handlers: map[string]worker.Handler{
//		Welcome.Name: Welcome.Handler(func(ctx context.Context, m Mail) error { … }),
//	}}
//
// # How often a key is worked
//
// A [Kind] chooses with Once:
//
//	ForEver        A key is worked once in its scope. Adding it again leaves it as it is, also when it is done, dead or
//	               cancelled, and after its history was pruned.
//	WhileOpen      One item of a key is open at a time: it waits, is ready, leased or in doubt. Adding it then leaves it
//	               as it is. Once it is done, dead or cancelled, adding it opens it again, with the new payload: the
//	               same item, in its next round; a dead item stays in its round, and its failures become 0. A value
//	               that is added while an attempt runs is not worked after it, unless Differs is Replace and the
//	               payload is another.
//	PerPeriod(…)   A key is worked once in each period ("day" in Europe/Berlin). Each period is a scope, named by its
//	               start ("2026-11-20"), below Scope if there is one ("news/2026-11-20"). The period is that in which
//	               the item is due, by default the one of the add, by the database's clock. The time at which it is
//	               done does not matter: an item that is added before midnight and done after it belongs to the first
//	               day. The items of past periods stay known; Ledger.Forget removes them.
//
// An item that is worked in every period without being added again is a recurring item, see Every of ledger.NewItem.
//
// # A known key with another payload
//
// Values of one key are to be equal. If the payload of the known item is another, Differs decides: by default it stays
// as it is and the add fails with ledger.ErrConflict. The comparison is by bytes of the JSON, so a field that the type
// gets later needs omitzero or omitempty: otherwise older values differ. There is no comparison for an item in doubt,
// and for a done item whose payload was pruned. A derived key never differs: another payload is another item.
//
// # How an attempt ends
//
// A handler returns nil for done, or an error for a failed attempt: the policy of the kind decides whether
// and when it is tried again. Errors wrapped by [Permanent], [RetryAfter], [Doubt], [Snooze], [Skip] and [Code] mean
// something else, also below further wrapping with %w. A panic is a failed attempt with code "panic" and the stack in
// its log; see worker.Func.
package typed
