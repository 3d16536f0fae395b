package smtp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/rawtest"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp/smtptest"
)

// conversation starts a server that accepts a mail, except that it does act at the step at. It sends to taken when it
// accepts the mail.
func conversation(t *testing.T, at string, act string, taken chan<- bool) string {
	return rawtest.Serve(t, func(c net.Conn) {
		r, refused := bufio.NewReader(c), false
		step := func(name, answer string) bool {
			if name != at {
				_, err := io.WriteString(c, answer)
				return err == nil
			}
			switch act {
			case "drop":
			case "stall":
				_, _ = io.Copy(io.Discard, c)
			default:
				_, err := io.WriteString(c, act+" no\r\n")
				refused = true
				return err == nil && name != "greeting"
			}
			return false
		}
		ok := step("greeting", smtptest.Greeting)
		for ok {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			word, _, _ := strings.Cut(strings.TrimSpace(strings.ToUpper(line)), " ")
			switch word {
			case "EHLO", "HELO":
				ok = step("EHLO", "250-raw.test\r\n250 AUTH PLAIN\r\n")
			case "AUTH":
				ok = step(word, "235 in\r\n")
			case "DATA":
				if ok = step(word, "354 go on\r\n"); !ok || refused {
					continue
				}
				if !smtptest.ToEnd(r) {
					return
				}
				if at != "end" {
					taken <- true // before the client gets the answer
				}
				ok = step("end", "250 taken\r\n")
			default: // MAIL, RCPT, QUIT
				ok = step(word, "250 ok\r\n")
			}
		}
	})
}

// TestEveryStep: at each step the server refuses temporarily or permanently, closes the connection or stops answering.
// The result of the mail is unknown only if the final answer does not come.
func TestEveryStep(t *testing.T) {
	leakFree(t)
	for _, step := range []string{"greeting", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "end"} {
		for _, act := range []string{"421", "454", "504 <a>: Helo rejected:", "504 <a>: Recipient rejected:", "530", "550",
			"552", "drop", "stall", ""} {
			want, code := failure.Again, map[string]string{"greeting": "connect", "EHLO": "connect", "AUTH": "auth"}[step]
			switch {
			case act == "":
				want, code = sent, ""
			case act == "stall" && step != "end":
				code = "timeout"
			case code != "":
			case act == "drop" && step != "end":
				code = "broken"
			case act == "drop" || act == "stall":
				want, code = failure.Doubt, "no_answer"
			default:
				code = "smtp_" + act[:3]
				if act == "552" || act == "550" && step != "MAIL" || strings.Contains(act, "Recip") && step == "RCPT" {
					// others are about the sender or this machine
					want = failure.Never
				}
			}
			t.Run(fmt.Sprint(step, " ", act), func(t *testing.T) {
				t.Parallel()
				taken := make(chan bool, 1)
				at := step
				if act == "" {
					at = "no step"
				}
				server := plain(conversation(t, at, act, taken))
				server.User, server.Password, server.Timeout = "news", "secret", 10*time.Second
				switch {
				case act == "stall" && step == "end":
					server.ReplyTimeout = short
				case act == "stall":
					server.Timeout = short
				}
				err := post(t.Context(), open(t, server))
				if f, got := end(err); f != want || got != code || err != nil && strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v %q, want %v %q: %v", f, got, want, code, err)
				}
				if len(taken) == 1 != (want == sent) {
					t.Errorf("taken: %v", len(taken) == 1)
				}
			})
		}
	}
}
