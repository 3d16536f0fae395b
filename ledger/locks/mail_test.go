package locks_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger/locks"
)

// The mail that went out three times: a program runs in three environments on one database, and
// each finds that the mail was not sent, sends it, and marks it as sent.

// send is a mail: a line in a file.
func send(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("mail\n")
	return errors.Join(err, f.Close())
}

const (
	readSent = `SELECT sent FROM mail`
	markSent = `UPDATE mail SET sent = 1`
)

// naive reads, sends and marks. Between the first two it waits, as long as a mail server may let it.
func naive(ctx context.Context, p *place, args []string) error {
	sent, err := number(ctx, p.conn, readSent)
	if err != nil {
		return err
	}
	answer("read")
	if sent == 0 {
		if err := send(args[0]); err != nil {
			return err
		}
	}
	_, err = p.conn.Exec(ctx, markSent)
	return err
}

// jobLock is the table of locks that one makes for oneself: the row is the lock, deleted at the end.
func jobLock(ctx context.Context, p *place, args []string) error {
	if _, err := p.conn.Exec(ctx, `INSERT INTO job_lock (job_name) VALUES ('mail')`); err != nil {
		answer("refused")
		return nil
	}
	answer("locked")
	if err := send(args[0]); err != nil {
		return err
	}
	_, err := p.conn.Exec(ctx, `DELETE FROM job_lock`)
	return err
}

// ours reads, sends and marks under a lock.
func ours(ctx context.Context, p *place, args []string) error {
	answer("ready")
	return p.locks.Do(ctx, "mail", locks.Options{Wait: patience}, func(ctx context.Context, _ *locks.Lock) error {
		sent, err := number(ctx, p.conn, readSent)
		if err != nil || sent > 0 {
			return err
		}
		if err := send(args[0]); err != nil {
			return err
		}
		_, err = p.conn.Exec(ctx, markSent)
		return err
	})
}

// holder takes a lock and never gives it back.
func holder(ctx context.Context, p *place, _ []string) error {
	if _, _, err := p.locks.Acquire(ctx, "mail", locks.Options{TTL: time.Second}); err != nil {
		return err
	}
	answer("held")
	return nil
}

// atOnce runs three children that say a line and go on together.
func (p *place) atOnce(t *testing.T, name, says, mails string) {
	t.Helper()
	var all []*child
	for range 3 {
		all = append(all, p.spawn(t, name, mails))
	}
	for _, c := range all {
		c.says(t, says)
	}
	for _, c := range all {
		c.tell(t, "go")
	}
	for _, c := range all {
		c.ends(t)
	}
}

// mailbox is the mails so far, and an unsent mail in the database.
func (p *place) mailbox(t *testing.T) (file string, mails func() int) {
	p.exec(t, `CREATE TABLE mail (sent bigint NOT NULL)`, `INSERT INTO mail VALUES (0)`)
	file = filepath.Join(t.TempDir(), "mails")
	return file, func() int {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return bytes.Count(text, []byte("\n"))
	}
}

func TestThreeMails(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		file, mails := p.mailbox(t)
		p.atOnce(t, "naive", "read", file)
		if mails() != 3 {
			t.Errorf("the naive way sent %d mails; this test has lost its object", mails())
		}
	})
}

// A table of one's own keeps out who comes at the same time; not who comes a moment later, and
// whoever dies keeps everybody out.
func TestJobLock(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		file, mails := p.mailbox(t)
		p.exec(t, `CREATE TABLE job_lock (job_name varchar(100) PRIMARY KEY)`)
		first, second := p.spawn(t, "job_lock", file), (*child)(nil)
		first.says(t, "locked")
		second = p.spawn(t, "job_lock", file)
		second.says(t, "refused")
		first.tell(t, "go")
		first.ends(t)
		late := p.spawn(t, "job_lock", file)
		late.says(t, "locked")
		late.tell(t, "go")
		late.ends(t)
		if mails() != 2 {
			t.Errorf("the job_lock table let %d mails go; this test has lost its object", mails())
		}
		dies := p.spawn(t, "job_lock", file)
		dies.says(t, "locked")
		if err := dies.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.spawn(t, "job_lock", file).says(t, "refused") // and so it stays
	})
}

// With a lock, and the question whether it was sent asked under it, there is one mail; also when
// the three come after somebody who died with the lock.
func TestOneMail(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		file, mails := p.mailbox(t)
		dies := p.spawn(t, "holder")
		dies.says(t, "held")
		began := time.Now()
		if err := dies.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.atOnce(t, "ours", "ready", file)
		if took := time.Since(began); took > 5*2*time.Second { // a TTL of a second, and looks twice a second
			t.Errorf("the lock of a dead holder was had after %v", took)
		}
		p.atOnce(t, "ours", "ready", file) // a moment later
		if mails() != 1 {
			t.Errorf("%d mails", mails())
		}
		if p.held(t, "mail") != nil {
			t.Error("the lock was not given back")
		}
	})
}
