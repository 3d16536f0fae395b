package ui

import (
	"net/http"
	"net/url"
	"sync"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/shell"
)

// actData has how many of the matching items each act would change.
type actData struct {
	Where  string
	Back   string
	Offers []counting
	Lines  []string
}

// counting is an act with how many items it would change.
type counting struct {
	offer
	Count int64
	Whole bool
}

// actForm is the page before an act is requested: it asks for a reason and a limit.
func actForm(v *view) (any, error) {
	where, err := chosen(v.URL.Query())
	if err != nil {
		return actData{}, err
	}
	d := actData{Where: where, Back: local(v.URL.Query().Get("back")),
		Lines: []string{"ledgerd retry --where " + shell.Quote(where) + " --dry-run", "PUT /api/v1/acts/UUID"}}
	all := []offer{{"retry", "", "Retry", true}, {"reopen", "", "Do again", false}, {"decide", "done", "Mark done", false},
		{"cancel", "", "Cancel", false}, {"release", "", "Take back from its holder", false}}
	counts, errs := make([]answer.BulkAct, len(all)), make([]error, len(all))
	var asked sync.WaitGroup
	for i, o := range all { // at the same time, because one count may take as long as its bound
		asked.Go(func() {
			counts[i], errs[i] = send[answer.BulkAct](v, http.MethodPut, "/acts/"+url.PathEscape(uuid.NewString()), nil,
				answer.ActRequest{Act: o.Act, Where: where, Outcome: o.Outcome, DryRun: true})
		})
	}
	asked.Wait()
	for i, o := range all {
		if errs[i] != nil {
			return d, errs[i]
		}
		if counts[i].Matched > 0 || !counts[i].Whole {
			d.Offers = append(d.Offers, counting{o, counts[i].Matched, counts[i].Whole})
		}
	}
	return d, nil
}
