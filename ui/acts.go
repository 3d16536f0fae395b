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
	request, err := requested(v.PostForm)
	if err == nil {
		_, err = send[answer.BulkAct](v, http.MethodPut, "/acts/"+id, nil, request)
	}
	s.after(w, v.Request, id, err)
}

// requested reads the act from a form. A form may have several buttons: the value of a button is the name of its act,
// and for a decision also the outcome.
func requested(form url.Values) (r answer.ActRequest, err error) {
	name, outcome, _ := strings.Cut(form.Get("act"), " ")
	r = answer.ActRequest{Act: name, Outcome: cmp.Or(outcome, form.Get("outcome")), Reason: form.Get("reason")}
	if r.Where, err = chosen(form); err != nil || form.Get("limit") == "" {
		return r, err
	}
	if r.Limit, err = strconv.ParseInt(form.Get("limit"), 10, 64); err != nil || r.Limit < 1 {
		return r, &apiError{Status: http.StatusUnprocessableEntity, Title: "At most how many?",
			Detail: fmt.Sprintf("%q is not a number from 1 on", form.Get("limit")),
			Hint:   "without a number, all that match are changed"}
	}
	return r, nil
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
	if err != nil && problemOf(err).Code == "conflict" { // the act has ended: the page shows that
		err = nil
	}
	s.after(w, v.Request, id, err)
}

// pause pauses a kind or ends its pause, at once. The other button undoes it.
func (s *site) pause(w http.ResponseWriter, v *view) {
	pause := answer.Pause{Paused: v.PostFormValue("paused") == "true"}
	_, err := send[answer.Kind](v, http.MethodPut, "/kinds/"+url.PathEscape(v.PathValue("kind"))+"/paused", nil, pause)
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
