package api

import (
	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/ledger"
)

type roundsIn struct {
	Where  string `query:"where" doc:"filter, in the language of the command line; conditions on the newest attempt are asked of the one that closed the round"`
	From   string `query:"from" default:"24h" doc:"list those that were closed since then: a duration such as 2h, or a time in RFC 3339"`
	To     string `query:"to" doc:"list those that were closed before"`
	Limit  int64  `query:"limit" default:"100" range:"1 … 1000" doc:"at most this many rounds"`
	Cursor string `query:"cursor" doc:"next of the part before"`
}

// listRounds lists rounds of recurring items. A round that was done again, or was retried after it failed, is listed
// once for each attempt that closed it, and the first in the list counts.
func listRounds(c *Call, in roundsIn) (answer.List[answer.Round], error) {
	none := answer.List[answer.Round]{}
	at, from, after, err := c.beginEnded(in.Cursor, in.From, in.To, in.Where)
	if err != nil {
		return none, err
	}
	f, err := c.filter(in.Where, at.Now)
	if err != nil {
		return none, err
	}
	q := ledger.EndedQuery{Filter: f, After: after, Limit: int(in.Limit)}
	closed, reached, err := c.Read.Rounds(c.Context(), q, from, partTime)
	rows := make([]answer.Round, len(closed))
	for i, e := range closed {
		rows[i] = answer.NewRound(e)
	}
	next := ""
	if reached != (ledger.Mark{}) {
		next = at.after(reached)
	}
	return answer.NewList(rows, next), err
}
