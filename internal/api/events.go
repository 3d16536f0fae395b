package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/follow"
)

func eventRoutes() []Route {
	return []Route{
		route(Route{Name: "followEvents", Method: http.MethodGet, Path: "/events",
			Scope: access.Read, Codes: []string{"bad_filter", "too_many"},
			Timeout: streamTime, Summary: "Follow attempts as they end, as a stream of events"}, followEvents),
	}
}

const (
	streamTime  = time.Hour // then a caller begins again, after the last event
	streamEvery = time.Second
	streamBeat  = 15 * time.Second // a sign of life
	streamWrite = 10 * time.Second // for a caller to take what is sent
	maxStreams  = 64               // at a time
)

type eventsIn struct {
	Where string `query:"where" doc:"filter"`
	Last  string `header:"Last-Event-ID" doc:"go on after this event; what ended in the seconds around it may come again, with the same id"`
}

// stream is a stream of events to one caller.
type stream struct {
	follower *follow.Follower
	from     ledger.Mark
}

func followEvents(c *Call, in eventsIn) (stream, error) {
	f, err := c.filter(in.Where, time.Now())
	if err != nil {
		return stream{}, err
	}
	if in.Last != "" {
		m, err := parseEventID(in.Last)
		return stream{follow.New(c.Read, ledger.EndedQuery{Filter: f}, m.At), m}, err
	}
	now, err := c.Read.Now(c.Context())
	if err != nil {
		return stream{}, err
	}
	s := stream{follow.New(c.Read, ledger.EndedQuery{Filter: f}, now), ledger.Mark{At: now}}
	return s, s.follower.Begin(c.Context(), 0, nil)
}

// eventID names an attempt that has ended.
func eventID(m ledger.Mark) string {
	return fmt.Sprintf("%d-%d-%d", m.At.UnixMicro(), m.ItemID, m.Number)
}

func parseEventID(text string) (ledger.Mark, error) {
	var micro int64
	var m ledger.Mark
	_, err := fmt.Sscanf(text, "%d-%d-%d", &micro, &m.ItemID, &m.Number)
	m.At = time.UnixMicro(micro)
	if err != nil || eventID(m) != text {
		return m, bad("Last-Event-ID", "send the id of an event as it is", "%q is not an id of an event", text)
	}
	return m, nil
}

// write sends events until the caller closes the connection, the server ends, or the time of the stream is over.
func (s stream) write(c *Call) error {
	select {
	case c.api.streams <- struct{}{}:
		defer func() { <-c.api.streams }()
	default:
		return failure.Usage("too_many", "try again later", "%d callers follow already", maxStreams)
	}
	ctx, end := context.WithCancel(c.Context())
	defer end()
	defer context.AfterFunc(c.api.ctx, end)()
	c.w.Header().Set("Content-Type", mediaEvents)
	out := sender{c.w, http.NewResponseController(c.w)}
	// A caller that has seen no event goes on after the id of the beginning.
	if out.send(": attempts as they end\nid: "+eventID(s.from)+"\n\n") != nil {
		return nil // it has gone
	}
	look, beat := time.NewTicker(streamEvery), time.NewTicker(streamBeat)
	defer look.Stop()
	defer beat.Stop()
	for {
		text := ""
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			if !c.stillGranted() {
				return nil
			}
			text = ":\n\n"
		case <-look.C:
			if err := s.follower.Poll(ctx, out.event); err != nil && ctx.Err() == nil {
				c.api.Log.Warn("a stream of events ends", "error", err)
				return nil
			}
		}
		if out.send(text) != nil {
			return nil
		}
	}
}

// stillGranted reports whether the token of a stream still has the rights with which it began.
func (c *Call) stillGranted() bool {
	now, err := c.api.Guard.Login(c.Request)
	return err == nil && reflect.DeepEqual(now, c.Grant)
}

// sender writes to a caller that may be slow.
type sender struct {
	w          http.ResponseWriter
	controller *http.ResponseController
}

func (s sender) event(e ledger.Ended) error {
	text, err := report.Marshal(answer.NewEnded(e))
	if err != nil {
		return err
	}
	return s.send("id: " + eventID(e.Mark()) + "\nevent: ended\ndata: " + strings.TrimSpace(string(text)) + "\n\n")
}

// send writes a text at once, or fails in time.
func (s sender) send(text string) error {
	if text == "" {
		return nil
	}
	_ = s.controller.SetWriteDeadline(time.Now().Add(streamWrite)) // where there are deadlines
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.controller.Flush()
}
