package mail

import (
	"net"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// All of this goes through the process that ledgerd would start.

func TestProcess(t *testing.T) {
	leakFree(t)
	refuse := func(to string) error {
		switch to {
		case "gone@example.com":
			return says(550, "no such user")(to)
		case "full@example.com":
			return says(452, "mailbox full")(to)
		}
		return nil
	}
	box := mailbox{atRcpt: refuse, login: "news:secret"}
	box.listen(t, nil)
	templates := folder(t, map[string]string{"spring.subject": "Spring", "spring.txt": "Dear {{.name}}"})
	h := sdktest.New(t, Plugin(), sdktest.Options{
		Config:  map[string]any{"server": box.addr, "from": "news@example.com", "tls": "none", "user": "news", "templates": templates},
		Secrets: map[string]string{"password": "secret"},
	})
	for _, tt := range []struct {
		payload       any
		outcome, code string
		final         bool
	}{
		{hello("ann@example.com"), "done", "", false},
		{map[string]any{"to": "ann@example.com", "template": "spring", "data": map[string]any{"name": "Ann"}}, "done", "", false},
		{hello("gone@example.com"), "failed", "smtp_550", true},
		{hello("full@example.com"), "failed", "smtp_452", false},
		{hello("nobody"), "failed", "bad_address", true},
		{map[string]any{"to": "ann@example.com"}, "failed", "bad_mail", true},
		{map[string]any{"to": "ann@example.com", "template": "../spring"}, "failed", "payload", true},
		{map[string]any{"to": "ann@example.com", "template": "spring"}, "failed", "template", true},
		{map[string]any{"subject": "x"}, "failed", "payload", true},
	} {
		r := h.Run(sdktest.Task{Payload: tt.payload})
		if r.Outcome != tt.outcome || r.Code != tt.code || r.Final != tt.final {
			t.Errorf("%v: got %s %q %q, final %v; want %s %q, final %v", tt.payload, r.Outcome, r.Code, r.Error, r.Final, tt.outcome, tt.code, tt.final)
		}
	}
	for attempt, want := range map[int64]time.Duration{1: 5 * time.Second, 3: 45 * time.Second, 6: 1215 * time.Second, 7: 30 * time.Minute, 1 << 40: 30 * time.Minute} {
		r := h.Run(sdktest.Task{Payload: hello("full@example.com"), Attempt: attempt})
		if r.Delay != want {
			t.Errorf("after attempt %d it waits for %s, want %s", attempt, r.Delay, want)
		}
	}
	if n := len(box.taken()); n != 2 {
		t.Errorf("%d mails were taken, want 2", n)
	}
}

func TestProcessDoubt(t *testing.T) {
	leakFree(t)
	server := raw(t, func(c net.Conn) { wholeMail(c) })
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: defaults(server)})
	r := h.Run(sdktest.Task{Payload: hello("ann@example.com")})
	if out := sdktest.Decode[Out](t, r); r.Outcome != "unknown" || r.Code != "no_answer" || out.MessageID == "" {
		t.Errorf("got %+v, want doubt that names the mail", r)
	}
}

func TestProcessCancel(t *testing.T) {
	leakFree(t)
	server := raw(t, func(c net.Conn) {
		untilData(c)
		var one [1]byte
		_, _ = c.Read(one[:]) // ends with the connection
	})
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: defaults(server)})
	if r := h.Run(sdktest.Task{Payload: hello("ann@example.com"), Fault: sdktest.Cancel}); r.Outcome != "cancelled" {
		t.Errorf("got %+v, want cancelled", r)
	}
}

func TestConformance(t *testing.T) {
	sdktest.Conformance(t, Plugin(), sdktest.Options{Config: defaults("127.0.0.1:9")})
}
