package sqlite

import (
	"context"
	"errors"
)

// readPool is a small pool of connections that only read. It is not a pool of database/sql: a handle calls the driver
// directly and keeps its own prepared statements, as that of the writer does.
type readPool struct {
	file *file
	free chan *handle // nil: one more may be opened
}

const (
	maxReaders = 4 // connections for reads that may take long
	maxProbes  = 2 // and for short reads of the hot path: they do not wait for those
)

func newReadPool(f *file, most int) *readPool {
	p := &readPool{file: f, free: make(chan *handle, most)}
	for range most {
		p.free <- nil
	}
	return p
}

// use lends a connection to fn; with snapshot, fn sees one commit.
func (p *readPool) use(ctx context.Context, snapshot bool, fn func(session) error) (err error) {
	var h *handle
	select {
	case h = <-p.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	sound := false
	defer func() {
		if !sound && h != nil { // fn panicked, or its transaction is open: the connection is not used again
			err = errors.Join(err, h.close())
			h = nil
		}
		p.free <- h
	}()
	if h == nil {
		// In WAL mode readers do not wait for the writer, only for a process that opens or closes the file.
		if h, err = open(ctx, p.file.uri("busy_timeout(5000)", "query_only(1)", "cache_size(-2048)",
			"temp_store(MEMORY)")); err != nil {
			return err
		}
	}
	if !snapshot {
		err = fn(h.with(ctx))
		sound = true
		return err
	}
	if _, err := h.exec(ctx, "BEGIN", nil); err != nil {
		return err
	}
	err = fn(h.with(ctx))
	_, e := h.exec(context.WithoutCancel(ctx), "COMMIT", nil)
	sound = e == nil
	return err
}

func (p *readPool) close() error {
	var errs []error
	for range cap(p.free) {
		if h := <-p.free; h != nil {
			errs = append(errs, h.close())
		}
	}
	return errors.Join(errs...)
}
