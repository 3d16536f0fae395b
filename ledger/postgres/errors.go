package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
)

// errUnknownFate marks a connection that broke while a change was being committed.
var errUnknownFate = errors.New("the connection broke during a commit, which may or may not have taken effect")

// errClosed is what calls get after Close.
var errClosed = fmt.Errorf("%w: the ledger is closed", ledger.ErrInvalid)

// explain makes a *ledger.Error of an error of the database, with its kind, a hint and the name of the ledger. Errors
// of package ledger and errors of other origin stay as they are.
func explain(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	if known := new(ledger.Error); errors.As(err, &known) {
		return err
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%s: %w", name, cause)
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		return fmt.Errorf("%w: the pool of %s is closed: close it after the last use", ledger.ErrInvalid, name)
	}
	tell := func(kind error, hint, format string, args ...any) *ledger.Error {
		return &ledger.Error{Kind: kind, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
	}
	if bad := new(pgconn.PgError); errors.As(err, &bad) {
		return explainSQLState(tell, name, bad, err)
	}
	switch {
	case errors.Is(err, errUnreplicated):
		return tell(ledger.ErrUnavailable, "is the standby running? repeat it, what has landed is recognised", "%s: %v",
			name, errUnreplicated)
	case errors.Is(err, errUnknownFate):
		return tell(ledger.ErrUnavailable, "repeat it, what has landed is recognised", "%s: %v (%s)", name, errUnknownFate,
			reason(err))
	case lost(err):
		return tell(ledger.ErrUnavailable, "is Postgres running and listening there? nothing was lost, run it again",
			"cannot reach the ledger %s: %s", name, reason(err))
	}
	return err
}

func explainSQLState(tell func(kind error, hint, format string, args ...any) *ledger.Error, name string,
	bad *pgconn.PgError, err error) error {
	switch {
	case bad.Code == "28P01" || bad.Code == "28000":
		return tell(ledger.ErrDenied, "check both, and pg_hba.conf", "%s: Postgres refused the user or the password: %s",
			name, bad.Message)
	case bad.Code == "42501":
		return tell(ledger.ErrDenied, grantFor(bad.Message), "%s: %s", name, bad.Message).By(act.Examine)
	case bad.Code == "3D000":
		return tell(ledger.ErrInvalid, "create it first (createdb), or name another one", "%s: %s", name, bad.Message)
	case bad.Code == "3F000" || bad.Code == "42P01" && strings.Contains(bad.Message, "ledger_"):
		return tell(ledger.ErrNoLedger, "make one", "no ledger in %s: %s", name, bad.Message).By(act.Migrate)
	case bad.Code == "42703":
		return tell(ledger.ErrSchema, "the tables are not those of this program, look at their schema", "%s: %s", name,
			bad.Message).By(act.ShowSchema)
	case bad.Code == "08P01" && strings.Contains(bad.Message, "startup parameter"):
		return tell(ledger.ErrInvalid, "migrate at the address of the server itself, and leave parameters of sessions out "+
			"of the URL", "%s: there is a pooler before the server, and it does not take this: %s", name, bad.Message)
	case bad.Code == "08P01" && strings.Contains(bad.Message, "statement pooling"):
		return tell(ledger.ErrInvalid, "set its pool_mode to transaction or session", "%s: there is a pooler before the "+
			"server, in a mode that allows no transactions: %s", name, bad.Message)
	case bad.Code == "XX001" || bad.Code == "XX002": // a page, an index
		return tell(ledger.ErrDamaged, recovery, "%s is damaged: %s (%s)", name, bad.Message, bad.Code)
	case bad.Code == "25006":
		return tell(ledger.ErrUnavailable, "it may be a standby, name the primary", "%s: the server takes no writes (%s)",
			name, bad.Message)
	case bad.Code == "53100":
		return tell(ledger.ErrUnavailable, "make room there and run it again", "%s: the database server's disk is full (%s)",
			name, bad.Message)
	case bad.Code == "53300":
		return tell(ledger.ErrUnavailable, "close some clients, raise max_connections, or use fewer with pool_max_conns",
			"%s: %s", name, bad.Message)
	case errors.Is(err, errUnknownFate):
		return tell(ledger.ErrUnavailable, "repeat it, what has landed is recognised", "%s: %v (%s)", name, errUnknownFate,
			bad.Message)
	case unavailable(bad):
		return tell(ledger.ErrUnavailable, "run it again", "%s: the database cannot do it now: %s (%s)", name, bad.Message,
			bad.Code)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// away makes ErrUnavailable of errors that an open ledger may recover from: its database is gone, perhaps renamed while
// it is restored, or the server refuses the user, perhaps while a password is changed or pg_hba.conf is edited.
func away(name string, err error) error {
	bad := new(pgconn.PgError)
	if !errors.As(err, &bad) {
		return err
	}
	hint := ""
	switch bad.Code {
	case "3D000":
		hint = "it was there when the ledger was opened: was it renamed or dropped?"
	case "28P01", "28000":
		hint = "the server took the user and the password before: check both, and pg_hba.conf"
	default:
		return err
	}
	return &ledger.Error{Kind: ledger.ErrUnavailable, Message: name + ": " + bad.Message, Hint: hint, Err: err}
}

// unavailable reports whether the same statement may succeed later.
func unavailable(bad *pgconn.PgError) bool {
	classes := []string{"08", "40", "53", "57", "58"} // connection, rollback, resources, operator, system
	return slices.Contains(classes, bad.Code[:min(2, len(bad.Code))]) || bad.Code == "55P03" || tooSlow(bad)
}

// sqlState returns the code of an error of the server, "" for any other error.
func sqlState(err error) string {
	if bad, ok := errors.AsType[*pgconn.PgError](err); ok {
		return bad.Code
	}
	return ""
}

// rolledBack reports whether the server has undone the transaction and it may simply be repeated:
// serialization failure, deadlock, lock not available.
func rolledBack(err error) bool {
	return slices.Contains([]string{"40001", "40P01", "55P03"}, sqlState(err))
}

func uniqueViolation(err error) bool { return sqlState(err) == "23505" }

// readOnly reports whether the server behind the connection takes no writes: after a failover.
func readOnly(err error) bool { return sqlState(err) == "25006" }

// unprepared reports whether a statement was refused because the session has lost it, or has another result for it than
// when it was prepared: a DISCARD ALL, or a migration of the tables. Only the name of the server's function tells a
// changed result, since the server translates its texts.
func unprepared(err error) bool {
	bad := new(pgconn.PgError)
	return errors.As(err, &bad) && (bad.Code == "26000" || bad.Code == "42P05" ||
		bad.Code == "0A000" && bad.Routine == "RevalidateCachedQuery")
}

// lost reports whether the connection broke, or could not be made.
func lost(err error) bool {
	if bad := new(pgconn.PgError); errors.As(err, &bad) {
		return strings.HasPrefix(bad.Code, "08") || tooSlow(bad) || strings.HasPrefix(bad.Code, "57P")
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// tooSlow reports whether the server ended the session for idle_in_transaction_session_timeout or transaction_timeout.
func tooSlow(bad *pgconn.PgError) bool { return bad.Code == "25P03" || bad.Code == "25P04" }

// reason is why a connection broke, in few words: a driver's errors name every address tried.
func reason(err error) string {
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("cannot find host %s (%s)", dns.Name, dns.Err)
	case errors.As(err, &errno):
		return errno.Error()
	case pgconn.Timeout(err):
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closed the connection"
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		err = connect.Unwrap()
	}
	text := err.Error()
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// ledgerName names a ledger as its URL does, without the password.
func ledgerName(c *pgx.ConnConfig) string {
	host := c.Host
	if strings.HasPrefix(host, "/") {
		return fmt.Sprintf("postgres://%s@/%s?host=%s", c.User, c.Database, host)
	}
	return fmt.Sprintf("postgres://%s@%s/%s", c.User, net.JoinHostPort(host, fmt.Sprint(c.Port)), c.Database)
}
