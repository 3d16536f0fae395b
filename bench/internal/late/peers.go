package late

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"maragu.dev/goqite"

	"github.com/ledgerd/ledgerd/bench/internal/ours"
	"github.com/ledgerd/ledgerd/bench/internal/peers"
)

// riverOnPostgres lets two workers have one job of River: the first is paused until the second works on it, then
// reports too late. The rescuer of the leader gives a job to another worker if a worker has held it for longer than
// RescueStuckJobsAfter. The default is an hour; here it is seconds, and so is the timeout of a job.
func riverOnPostgres(ctx context.Context, b *ours.Bench) (o Outcome, err error) {
	o.Queue, o.Database = "River", "Postgres"
	r, err := peers.NewRiver(ctx, b.Postgres)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, r.Remove()) }()
	// A separate client is the leader. If the paused process were the leader, no job would be rescued until its
	// leadership has expired.
	leader, err := r.Leader(ctx)
	if err != nil {
		return o, err
	}
	if err := r.InsertOne(ctx); err != nil {
		return o, errors.Join(err, leader.Stop(ctx))
	}
	first, err := hold(ctx, "river", r.Address())
	if err != nil {
		return o, errors.Join(err, leader.Stop(ctx))
	}
	defer first.end()
	begun, finish := make(chan struct{}), make(chan error)
	second, err := r.Work(ctx, func(context.Context) error { close(begun); return <-finish })
	if err := errors.Join(err, leader.Stop(ctx)); err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, second.Stop(context.WithoutCancel(ctx))) }()
	defer close(finish) // runs before Stop, which waits for the handler
	select {
	case <-begun:
	case <-ctx.Done():
		return o, ctx.Err()
	}
	if o.Told, err = first.finish(); err != nil {
		return o, err
	}
	job, err := r.Only(ctx)
	if err != nil {
		return o, err
	}
	o.Accepted = job.State != "running"
	o.Then = fmt.Sprintf("job %s, attempt %d, while the second worker is at it", job.State, job.Attempt)
	finish <- errors.New("the second worker failed")
	if _, err := second.Event(ctx); err != nil {
		return o, err
	}
	if job, err = r.Only(ctx); err != nil {
		return o, err
	}
	o.End = fmt.Sprintf("job %s, though the second worker reported an error", job.State)
	if job.State != "completed" {
		o.End = fmt.Sprintf("job %s, as the second worker reported", job.State)
	}
	return o, nil
}

// holdRiver is the first worker of River; it runs in a process of its own.
func holdRiver(ctx context.Context, address string) (told string, err error) {
	r, err := peers.OpenRiver(ctx, address)
	if err != nil {
		return "", err
	}
	defer r.Close()
	client, err := r.Work(ctx, func(context.Context) error { return holding() })
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, client.Stop(context.WithoutCancel(ctx))) }()
	event, err := client.Event(ctx)
	return "event " + event, err
}

// goqiteTimeout is how long a received message is hidden; the default is 5 s.
const goqiteTimeout = 2 * time.Second

// goqiteOnSQLite lets two workers have one message of goqite: the first is paused until the second has received the
// message, then reports too late. A message that was not deleted is received again after its timeout.
func goqiteOnSQLite(ctx context.Context, b *ours.Bench) (o Outcome, err error) {
	o.Queue, o.Database = "goqite", "SQLite"
	q, err := peers.NewGoqiteFile(ctx, b.Dir, goqiteTimeout)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, q.Remove()) }()
	if err := q.Send(ctx, goqite.Message{Body: ours.Payload(0)}); err != nil {
		return o, err
	}
	first, err := hold(ctx, "goqite", q.Path)
	if err != nil {
		return o, err
	}
	defer first.end()
	var second *goqite.Message
	if err := poll(ctx, func() (_ bool, err error) {
		second, err = q.Receive(ctx)
		return second != nil, err
	}); err != nil {
		return o, err
	}
	if o.Told, err = first.finish(); err != nil {
		return o, err
	}
	left, err := q.Count(ctx)
	if err != nil {
		return o, err
	}
	o.Accepted = left == 0
	o.Then = fmt.Sprintf("%d messages left, while the second worker is at it", left)
	// The second worker fails, so it does not delete the message. The message must be received again.
	time.Sleep(goqiteTimeout + time.Second)
	again, err := q.Receive(ctx)
	o.End = "the second worker failed, and the message is received again"
	if again == nil {
		o.End = "the second worker failed, and the message is gone"
	}
	return o, err
}

// holdGoqite is the first worker of goqite; it runs in a process of its own.
func holdGoqite(ctx context.Context, path string) (told string, err error) {
	q, err := peers.OpenGoqite(path, goqiteTimeout)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	m, err := q.Receive(ctx)
	if err != nil {
		return "", err
	}
	if m == nil {
		return "", io.ErrUnexpectedEOF
	}
	if err := holding(); err != nil {
		return "", err
	}
	return "no error", q.Delete(ctx, m.ID)
}
