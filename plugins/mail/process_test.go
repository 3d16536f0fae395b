//go:build unix

package mail

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	netmail "net/mail"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/rawtest"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp/smtptest"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestSend(t *testing.T) {
	leakFree(t)
	var box smtptest.Mailbox
	box.Listen(t, nil)
	cfg := open(t, defaults(box.Addr))
	var ids []string
	for range 3 {
		out, err := post(t.Context(), cfg, hello("Ann <ann@example.com>"))
		if err != nil || out.Reply == "" || out.Bytes == 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		ids = append(ids, out.MessageID)
	}
	if ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("attempts at one mail have ids %v", ids)
	}
	other, err := post(t.Context(), cfg, hello("bob@example.com"))
	if err != nil || other.MessageID == ids[0] {
		t.Errorf("another mail has the id %s of the first, %v", other.MessageID, err)
	}
	mails := box.Taken()
	if len(mails) != 4 || mails[0].To != "ann@example.com" || mails[0].From != "news@example.com" {
		t.Fatalf("%+v", mails)
	}
	if n := box.Connections(); n != 1 {
		t.Errorf("%d connections for four mails in a row", n)
	}
	m, err := netmail.ReadMessage(bytes.NewReader(mails[0].Content))
	must.OK(t, err)
	for name, want := range map[string]string{
		"From": `"Example News" <news@example.com>`, "To": `"Ann" <ann@example.com>`, "Subject": "Hello", "Message-Id": "<" +
			ids[0] + ">",
	} {
		if have := m.Header.Get(name); have != want {
			t.Errorf("%s: %s, want %s", name, have, want)
		}
	}
}

// If an item is cancelled before its mail is sent, the cause is reported. If its time is over, that is a timeout.
func TestToldToEnd(t *testing.T) {
	leakFree(t)
	for name, talk := range map[string]func(net.Conn){
		"EHLO": func(c net.Conn) {
			_, _ = io.WriteString(c, smtptest.Greeting)
			_, _ = bufio.NewReader(c).ReadString('\n')
		},
		"DATA": func(c net.Conn) { smtptest.UntilData(c) },
	} {
		for _, cause := range []error{sdk.ErrCancelled, sdk.ErrLeaseLost, context.DeadlineExceeded} {
			ctx, cancel := context.WithCancelCause(t.Context())
			cfg := open(t, defaults(rawtest.Serve(t, func(c net.Conn) {
				talk(c)
				cancel(cause)
				var one [1]byte
				_, _ = c.Read(one[:]) // ends with the connection
			})))
			_, err := post(ctx, cfg, hello("ann@example.com"))
			inTime := strings.Contains(fmt.Sprint(err), "the time of the item ended")
			if _, code := end(err); !errors.Is(err, cause) && !(code == "timeout" && inTime) {
				t.Errorf("%v at %s: %s, %v", cause, name, code, err)
			}
		}
	}
}

// The tests below use a process of the plugin, as ledgerd starts it.

func TestProcess(t *testing.T) {
	leakFree(t)
	refuse := func(to string) error {
		switch to {
		case "gone@example.com":
			return smtptest.Answers(550, "no such user")(to)
		case "full@example.com":
			return smtptest.Answers(452, "mailbox full")(to)
		}
		return nil
	}
	box := smtptest.Mailbox{AtRcpt: refuse, Login: "news:secret"}
	box.Listen(t, nil)
	templates := folder(t, map[string]string{"spring.subject": "Spring", "spring.txt": "Dear {{.name}}"})
	h := sdktest.New(t, Plugin(), sdktest.Options{
		Config: map[string]any{"server": box.Addr, "from": "news@example.com", "tls": "none", "user": "news",
			"templates": templates},
		Secrets: map[string]string{"password": "secret"},
	})
	for _, tt := range []struct {
		payload       any
		outcome, code string
		final         bool
	}{
		{hello("ann@example.com"), "done", "", false},
		{map[string]any{"to": "ann@example.com", "template": "spring", "data": map[string]any{"name": "Ann"}}, "done", "",
			false},
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
			t.Errorf("%v: got %s %q %q, final %v; want %s %q, final %v", tt.payload, r.Outcome, r.Code, r.Error, r.Final,
				tt.outcome, tt.code, tt.final)
		}
	}
	for attempt, want := range map[int64]time.Duration{1: 5 * time.Second, 3: 45 * time.Second, 6: 1215 * time.Second,
		7: 30 * time.Minute, 1 << 40: 30 * time.Minute} {
		r := h.Run(sdktest.Task{Payload: hello("full@example.com"), Attempt: attempt})
		if r.Delay != want {
			t.Errorf("after attempt %d it waits for %s, want %s", attempt, r.Delay, want)
		}
	}
	if n := len(box.Taken()); n != 2 {
		t.Errorf("%d mails were taken, want 2", n)
	}
}

func TestProcessDoubt(t *testing.T) {
	leakFree(t)
	server := rawtest.Serve(t, func(c net.Conn) { smtptest.WholeMail(c) })
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: defaults(server)})
	r := h.Run(sdktest.Task{Payload: hello("ann@example.com")})
	if out := sdktest.Decode[Out](t, r); r.Outcome != "unknown" || r.Code != "no_answer" || out.MessageID == "" {
		t.Errorf("got %+v, want doubt that names the mail", r)
	}
}

func TestConformance(t *testing.T) {
	sdktest.Conformance(t, Plugin(), sdktest.Options{Config: defaults("127.0.0.1:9")})
}
