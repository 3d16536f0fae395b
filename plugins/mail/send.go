package mail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

// lastWait is how long the answer to a whole mail is waited for once the item is to end. The
// process of a plugin that goes on for longer than 5 s is killed, and with it other mails.
const lastWait = 3 * time.Second

// send sends a mail and returns what the server answered. The error is a *failure.
func (s *sender) send(ctx context.Context, m *message) (reply string, err error) {
	for {
		c, err := s.connect(ctx)
		if err != nil {
			return "", err
		}
		reply, err = s.transfer(ctx, c, m)
		if f, ok := errors.AsType[*failure](err); ok && f.code == stale && ctx.Err() == nil {
			continue // a server may close an idle connection; a new one is never stale
		}
		return reply, err
	}
}

// stale is the code of a connection that was kept and is not taken any more. Nobody sees it.
const stale = "stale"

// transfer tells the server one mail. What decides is the line that ends it, a dot: as long as it
// has not left this machine in full nothing was sent, whatever goes wrong; from then on only an
// answer says whether the server has taken the mail.
func (s *sender) transfer(ctx context.Context, c *connection, m *message) (reply string, err error) {
	kept := false
	defer func() {
		if !kept {
			c.wire.Close() // without QUIT, which would end a mail that is cut off
		}
	}()
	stop := context.AfterFunc(ctx, func() { c.wire.Close() })
	defer stop()
	if err := c.wire.SetDeadline(time.Now().Add(s.cfg.Timeout)); err != nil {
		return "", transient("broken", err)
	}
	body, err := c.envelope(m)
	if err != nil {
		return "", err
	}
	if err := c.tell(body, m.content); err != nil {
		return "", err
	}
	if !stop() {
		return "", transient("cancelled", context.Cause(ctx))
	}
	// From here on the item's end does not break the connection: the answer is worth more.
	if err := c.wire.SetReadDeadline(time.Now().Add(s.cfg.ReplyTimeout)); err != nil {
		return "", transient("broken", err)
	}
	hurry := context.AfterFunc(ctx, func() { _ = c.wire.SetReadDeadline(time.Now().Add(lastWait)) })
	defer hurry()
	reply, err = c.end(body)
	if err == nil && hurry() {
		s.keep(c)
		kept = true
	}
	return reply, err
}

// envelope tells the server from whom and to whom, and asks to tell the mail.
func (c *connection) envelope(m *message) (body *smtp.DataCloser, err error) {
	if err := c.Mail("<" + m.from.Address.Address + ">"); err != nil {
		f := refused("the sender", err)
		if c.used && (f.code == "broken" || f.code == "smtp_421") {
			f.code = stale
		}
		return nil, f
	}
	if err := c.Rcpt("<" + m.to.Address.Address + ">"); err != nil {
		return nil, refused("the recipient", err)
	}
	w, err := c.Data()
	if err != nil {
		return nil, refused("the mail", err)
	}
	return w.(*smtp.DataCloser), nil
}

// tell tells the mail but for the line that ends it, and makes sure that it has left and that the
// server has not turned away meanwhile.
func (c *connection) tell(body io.Writer, content []byte) error {
	_, err := body.Write(content)
	if err == nil {
		err = c.Text.W.Flush()
	}
	if err == nil && c.Text.R.Buffered() == 0 && c.wire.silent() {
		return nil
	}
	// It speaks out of turn, or has closed the connection; perhaps it says why.
	if early := c.wire.SetReadDeadline(time.Now().Add(time.Second)); err == nil && early == nil {
		_, _, err = c.Text.ReadResponse(250)
	}
	if err == nil {
		err = errors.New("the server answers before the mail has ended")
	}
	return refused("the mail", err)
}

// end ends the mail and reads the answer.
func (c *connection) end(body *smtp.DataCloser) (reply string, err error) {
	err = body.Close()
	said, ok := errors.AsType[*textproto.Error](err)
	switch {
	case err == nil:
		return clip(body.ServerResponse()), nil
	case ok && said.Code/100 == 2:
		return clip(said.Msg), nil
	case ok && (said.Code/100 == 4 || said.Code/100 == 5):
		return "", refused("the mail", err)
	case c.wire.torn.Load():
		return "", transient("broken", fmt.Errorf("the connection broke before the mail had ended: %w", err))
	}
	return "", unknown("no_answer", fmt.Errorf("the whole mail was sent, and no answer came: the server may or may not have taken it (%w)", err))
}

// refused is the failure of a step before the mail had ended, or of one that the server answered.
func refused(what string, err error) *failure {
	if reply, ok := errors.AsType[*textproto.Error](err); ok {
		said := fmt.Errorf("the server refuses %s: %d %s", what, reply.Code, reply.Msg)
		code := fmt.Sprintf("smtp_%d", reply.Code)
		if reply.Code/100 == 5 {
			return permanent(code, said)
		}
		return transient(code, said)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return transient("timeout", fmt.Errorf("the server did not answer in time about %s", what))
	}
	return transient("broken", fmt.Errorf("the connection broke at %s: %w", what, err))
}

// clip shortens what a server wrote.
func clip(s string) string { return fmt.Sprintf("%.200s", s) }
