package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// act requests an act on all matching items and goes back to the page. The page shows the progress. The act is held for
// ten seconds, so that it can be undone.
func (s *site) act(w http.ResponseWriter, v *view) {
	id := uuid.NewString()
	// One form may have several buttons, so that of a decision names its outcome, too.
	name, outcome, _ := strings.Cut(v.PostFormValue("act"), " ")
	where, err := chosen(v.PostForm)
	if err != nil {
		s.fail(w, v.Request, local(v.PostFormValue("back")), err)
		return
	}
	request := answer.ActRequest{Act: name, Where: where,
		Outcome: cmp.Or(outcome, v.PostFormValue("outcome")), Reason: v.PostFormValue("reason")}
	if limit := v.PostFormValue("limit"); limit != "" {
		n, err := strconv.ParseInt(limit, 10, 64)
		if err != nil || n < 1 {
			s.fail(w, v.Request, local(v.PostFormValue("back")), &apiError{Status: http.StatusUnprocessableEntity,
				Title: "At most how many?", Detail: fmt.Sprintf("%q is no number from 1 on", limit),
				Hint: "without a number, all that match are changed"})
			return
		}
		request.Limit = n
	}
	_, err = send[answer.BulkAct](v, http.MethodPut, "/acts/"+id, nil, request)
	s.after(w, v.Request, id, err)
}

// chosen is the filter of a form: the ticked items, or else the filter of the list.
func chosen(form url.Values) (where string, err error) {
	if where = form.Get("where"); len(form["id"]) > 0 {
		where = "id:" + strings.Join(form["id"], ",")
	}
	if where == "" {
		return "", &apiError{Status: http.StatusUnprocessableEntity, Title: "No item is chosen",
			Detail: "No item is ticked, and the list has no filter.", Hint: "tick items, or give a filter such as kind:NAME"}
	}
	return where, nil
}

// undo undoes an act that is held. It stops an act that runs.
func (s *site) undo(w http.ResponseWriter, v *view) {
	id := v.PathValue("uuid")
	_, err := send[answer.BulkAct](v, http.MethodDelete, "/acts/"+url.PathEscape(id), nil, nil)
	if err != nil && problemOf(err).Code == "conflict" { // it has ended: the page tells
		err = nil
	}
	s.after(w, v.Request, id, err)
}

// pause pauses a kind or ends its pause, at once. The other button undoes it.
func (s *site) pause(w http.ResponseWriter, v *view) {
	wish := answer.Pause{Paused: v.PostFormValue("paused") == "true", Reason: v.PostFormValue("reason")}
	_, err := send[answer.Kind](v, http.MethodPut, "/kinds/"+url.PathEscape(v.PathValue("kind"))+"/paused", nil, wish)
	s.after(w, v.Request, "", err)
}

// after goes back to the page from which an act was requested.
func (s *site) after(w http.ResponseWriter, r *http.Request, id string, err error) {
	if err != nil {
		s.fail(w, r, local(r.PostFormValue("back")), err)
		return
	}
	back, err := url.Parse(local(r.PostFormValue("back")))
	if err != nil {
		back = &url.URL{Path: "/"}
	}
	if id != "" {
		q := back.Query()
		q.Set("act", id)
		back.RawQuery = q.Encode()
	}
	s.redirect(w, r, back.String())
}
