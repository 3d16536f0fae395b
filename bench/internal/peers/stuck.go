package peers

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"maragu.dev/goqite"

	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

// Client is a running River client, with its events.
type Client struct {
	*river.Client[pgx.Tx]
	events <-chan *river.Event
}

// stuck returns a configuration under which a job whose worker does not report is given to another worker after
// seconds.
func stuck(do func(context.Context) error) *river.Config {
	c := config(does{do: do})
	c.JobTimeout, c.RescueStuckJobsAfter = time.Second, 2*time.Second
	return c
}

type does struct {
	river.WorkerDefaults[Job]
	do func(context.Context) error
}

func (d does) Work(ctx context.Context, _ *river.Job[Job]) error { return d.do(ctx) }

// Work starts a client that works with do.
func (r *River) Work(ctx context.Context, do func(context.Context) error) (*Client, error) {
	return r.start(ctx, stuck(do))
}

// Leader starts a client that works no jobs and waits until it is the leader.
func (r *River) Leader(ctx context.Context) (*Client, error) {
	c := stuck(func(context.Context) error { return errors.New("not its queue") })
	c.Queues = map[string]river.QueueConfig{"another": {MaxWorkers: 1}}
	client, err := r.start(ctx, c)
	if err != nil {
		return nil, err
	}
	for {
		var leaders int
		if err := r.pool.QueryRow(ctx, "SELECT count(*) FROM river_leader").Scan(&leaders); err != nil {
			return nil, errors.Join(err, client.Stop(ctx))
		}
		if leaders > 0 {
			return client, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *River) start(ctx context.Context, c *river.Config) (*Client, error) {
	client, err := river.NewClient(riverpgxv5.New(r.pool), c)
	if err != nil {
		return nil, err
	}
	events, _ := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled,
		river.EventKindJobSnoozed)
	return &Client{client, events}, client.Start(ctx)
}

// Event returns the kind of the next event.
func (c *Client) Event(ctx context.Context) (string, error) {
	select {
	case e := <-c.events:
		return string(e.Kind), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// InsertOne inserts one job.
func (r *River) InsertOne(ctx context.Context) error {
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{})
	if err == nil {
		_, err = client.Insert(ctx, Job{ours.Path(0)}, nil)
	}
	return err
}

// Only returns the only job.
func (r *River) Only(ctx context.Context) (*rivertype.JobRow, error) {
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{})
	if err != nil {
		return nil, err
	}
	list, err := client.JobList(ctx, river.NewJobListParams())
	if err != nil {
		return nil, err
	}
	if len(list.Jobs) != 1 {
		return nil, errors.New("there is not one job")
	}
	return list.Jobs[0], nil
}

// Address returns the database's URL with the schema.
func (r *River) Address() string {
	u, err := url.Parse(r.url)
	if err != nil {
		panic(err) // it has been connected to
	}
	q := u.Query()
	q.Set("search_path", r.schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// OpenRiver opens the installation that another process has made.
func OpenRiver(ctx context.Context, address string) (*River, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	r := &River{url: address, schema: u.Query().Get("search_path")}
	r.pool, err = r.connect(ctx)
	return r, err
}

// Close closes the connections.
func (r *River) Close() { r.pool.Close() }

// GoqiteFile is a goqite queue in a file.
type GoqiteFile struct {
	*goqite.Queue
	Path string
	db   *sql.DB
}

// NewGoqiteFile makes a new queue.
func NewGoqiteFile(ctx context.Context, dir string, timeout time.Duration) (*GoqiteFile, error) {
	db, path, err := database(dir)
	if err != nil {
		return nil, err
	}
	q, err := NewGoqite(ctx, db, timeout)
	return &GoqiteFile{q, path, db}, err
}

// OpenGoqite opens the queue that another process has made.
func OpenGoqite(path string, timeout time.Duration) (*GoqiteFile, error) {
	db, err := open(path)
	if err != nil {
		return nil, err
	}
	return &GoqiteFile{goqite.New(goqite.NewOpts{DB: db, Name: ours.Kind, Timeout: timeout}), path, db}, nil
}

// Count counts the messages.
func (q *GoqiteFile) Count(ctx context.Context) (n int, err error) {
	err = q.db.QueryRowContext(ctx, "SELECT count(*) FROM goqite").Scan(&n)
	return n, err
}

// Close closes the file.
func (q *GoqiteFile) Close() error { return q.db.Close() }

// Remove closes and deletes it.
func (q *GoqiteFile) Remove() error { return errors.Join(q.db.Close(), ours.RemoveSQLite(q.Path)) }
