package smtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"time"

	gosmtp "github.com/wneessen/go-mail/smtp"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// lastWait is how long to wait for the answer to a whole mail after the item is cancelled. It is shorter than 5 s:
// after 5 s the plugin's process is killed, and its other mails with it.
const lastWait = 3 * time.Second

// transfer sends one mail.
func (s *Sender) transfer(ctx context.Context, c *connection, from string, to []string, content []byte) (reply string,
	err error) {
	kept := false
	defer func() {
		if !kept {
			c.wire.Close() // no QUIT: the client would first end the mail, although it is incomplete
		}
	}()
	stop := context.AfterFunc(ctx, func() { c.wire.Close() })
	defer stop()
	if err := c.wire.SetDeadline(time.Now().Add(s.server.Timeout)); err != nil {
		return "", failure.Transient("broken", err)
	}
	body, err := c.envelope(from, to)
	if err != nil {
		if c.reset(err) && stop() {
			s.keep(c)
			kept = true
		}
		return "", err
	}
	if err := c.sendContent(body, content); err != nil {
		return "", err
	}
	if !stop() {
		return "", failure.Transient("cancelled", context.Cause(ctx))
	}
	// From here on, cancelling the item does not close the connection, because the answer tells the result.
	if err := c.wire.SetReadDeadline(time.Now().Add(s.server.ReplyTimeout)); err != nil {
		return "", failure.Transient("broken", err)
	}
	stopHurry := context.AfterFunc(ctx, func() { _ = c.wire.SetReadDeadline(time.Now().Add(lastWait)) })
	defer stopHurry()
	reply, err = c.sendDot(body)
	if err == nil && stopHurry() {
		s.keep(c)
		kept = true
	}
	return reply, err
}

// envelope sends MAIL, RCPT and DATA. If the server refuses one recipient, none gets the mail: the next attempt is for
// all recipients again, and the others would get it twice.
func (c *connection) envelope(from string, to []string) (body *gosmtp.DataCloser, err error) {
	if err := c.Mail("<" + from + ">"); err != nil {
		f := refused("the sender", err)
		if f.Code != "smtp_552" { // the cause of all other replies is the config: its sender, account or network
			f.Fate = failure.Again
		}
		if c.used && (f.Code == "broken" || f.Code == "smtp_421") {
			f.Code = stale
		}
		return nil, f
	}
	for _, one := range to {
		if err := c.Rcpt("<" + one + ">"); err != nil {
			f := refused("the recipient "+one, err)
			if f.Code == "smtp_504" && !strings.Contains(strings.ToLower(err.Error()), "helo") {
				f.Fate = failure.Never
			}
			return nil, f
		}
	}
	w, err := c.Data()
	if err != nil {
		return nil, refused("the mail", err)
	}
	return w.(*gosmtp.DataCloser), nil
}

// reset takes back a mail that was refused before its content, and reports whether the connection can be used for the
// next one. It cannot after 421, or after a permanent refusal that is not about the mail: of the login, TLS, EHLO or
// the sender.
func (c *connection) reset(err error) bool {
	f, ok := errors.AsType[*failure.Error](err)
	temporary := ok && strings.HasPrefix(f.Code, "smtp_4") && f.Code != "smtp_421"
	return ok && (temporary || f.Fate == failure.Never) && c.Reset() == nil
}

// sendContent sends the mail without the final dot. It checks that all bytes left and that the server has neither
// closed the connection nor answered early.
func (c *connection) sendContent(body io.Writer, content []byte) error {
	_, err := body.Write(content)
	if err == nil {
		err = c.Text.W.Flush()
	}
	if err == nil && c.Text.R.Buffered() == 0 && c.wire.silent() {
		return nil
	}
	// The server answered early or closed the connection. Its answer may contain the reason.
	if err == nil && c.wire.SetReadDeadline(time.Now().Add(time.Second)) == nil {
		_, _, err = c.Text.ReadResponse(250)
	}
	if err == nil {
		err = errors.New("the server answers before the mail has ended")
	}
	return refused("the mail", err)
}

// sendDot sends the final dot and reads the answer.
func (c *connection) sendDot(body *gosmtp.DataCloser) (reply string, err error) {
	err = body.Close()
	said, ok := errors.AsType[*textproto.Error](err)
	switch {
	case err == nil:
		return clip(body.ServerResponse()), nil
	case ok && said.Code/100 == 2:
		return clip(said.Msg), nil
	case ok && (said.Code/100 == 4 || said.Code/100 == 5):
		return "", refused("the mail", err)
	case c.wire.writeFailed.Load():
		return "", failure.Transient("broken", fmt.Errorf("the connection broke before the mail had ended: %w", err))
	}
	return "", failure.Unknown("no_answer", fmt.Errorf("the whole mail was sent, and no answer came: the server may or "+
		"may not have taken it (%w)", err))
}

// notOfMail are permanent replies about the login, TLS or the name in EHLO, at any step. Postfix sends 504 for the name
// in EHLO, but in answer to RCPT also for a recipient without a full domain.
var notOfMail = []int{504, 530, 535, 538}

// refused makes the error of a step that failed before the final dot, or of a mail that the server refused.
func refused(what string, err error) *failure.Error {
	if reply, ok := errors.AsType[*textproto.Error](err); ok {
		said := errors.New(strings.TrimSpace(fmt.Sprintf("the server refuses %s: %d %s", what, reply.Code, reply.Msg)))
		code := fmt.Sprintf("smtp_%d", reply.Code)
		if reply.Code/100 == 5 && !slices.Contains(notOfMail, reply.Code) {
			return failure.Permanent(code, said)
		}
		return failure.Transient(code, said)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return failure.Transient("timeout", fmt.Errorf("the server did not answer in time about %s", what))
	}
	return failure.Transient("broken", fmt.Errorf("the connection broke at %s: %w", what, err))
}

// clip shortens a text of the server.
func clip(s string) string { return fmt.Sprintf("%.200s", s) }
