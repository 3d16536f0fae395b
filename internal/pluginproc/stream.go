package pluginproc

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Events is what happens on a stream. The functions are called one at a time, in order; while
// one runs nothing more is read, so that a slow host slows the plugin down.
type Events struct {
	// Results of attempts, as many as came together. Required. The slice and what it points
	// to are the receiver's.
	Results func([]*wire.Result)
	// Progress reports; nil means that they are dropped.
	Progress func([]*wire.Progress)
}

// bounds of one message to the plugin
const (
	batchItems = 1000
	batchBytes = 1 << 20 // of payloads and keys; one item alone has at most 1 MiB and a bit
)

// Stream is the host's side of one stream of items. Its methods may be called from any
// goroutine, also from within Events.
type Stream struct {
	events Events
	rpc    wire.Plugin_ProcessClient
	cancel context.CancelFunc

	mu      sync.Mutex
	credits int
	more    chan struct{} // closed and replaced when credits arrive
	items   []*wire.Item
	cancels []*wire.Cancel
	closing bool

	wake chan struct{} // to the writer, holds one
	done chan struct{} // closed when the last event has been delivered
	err  error         // why the stream ended, set before done is closed; nil if the plugin closed it
}

// OpenStream opens the stream on a connected and configured plugin. It ends when the plugin
// closes it after Close, when it breaks, or with Abort.
func OpenStream(client wire.PluginClient, e Events) (*Stream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	rpc, err := client.Process(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &Stream{
		events: e, rpc: rpc, cancel: cancel,
		more: make(chan struct{}),
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	go s.write()
	go s.read()
	return s, nil
}

// Send hands items to the plugin; it does not wait. It takes as many credits, and sends
// nothing and returns ErrCredits if there are fewer. The items must not be changed after.
func (s *Stream) Send(items []*wire.Item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrEnded
	}
	if len(items) > s.credits {
		return ErrCredits
	}
	s.credits -= len(items)
	s.items = append(s.items, items...)
	s.signal()
	return nil
}

// Cancel ends the context of an item that was sent. Its result still comes, unless it was on its
// way already. It does not wait.
func (s *Stream) Cancel(id, attempt int64, reason wire.Cancel_Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.cancels = append(s.cancels, &wire.Cancel{Id: id, Attempt: attempt, Reason: reason})
		s.signal()
	}
}

// Credits is how many items the plugin takes now.
func (s *Stream) Credits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.credits
}

// WaitCredits waits until the plugin takes at least one item and returns how many it takes.
func (s *Stream) WaitCredits(ctx context.Context) (int, error) {
	for {
		s.mu.Lock()
		n, more := s.credits, s.more
		s.mu.Unlock()
		select {
		case <-s.done:
			return 0, ErrEnded
		default:
		}
		if n > 0 {
			return n, nil
		}
		select {
		case <-more:
		case <-s.done:
			return 0, ErrEnded
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// Close means that no more items will be sent. The plugin gives its last results and ends the
// stream.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.signal()
}

// Abort ends the stream at once.
func (s *Stream) Abort() { s.cancel() }

// Ended is closed when the stream has ended and all its events were delivered.
func (s *Stream) Ended() <-chan struct{} { return s.done }

// Err is the cause of the stream's end, once Ended is closed; nil means that the plugin ended it.
func (s *Stream) Err() error { return s.err }

// signal wakes the writer. The caller holds mu.
func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write sends what has gathered since the last message, in as few messages as the bounds allow.
func (s *Stream) write() {
	var items []*wire.Item
	for {
		select {
		case <-s.wake:
		case <-s.done:
			return
		}
		s.mu.Lock()
		items, s.items = s.items, items[:0]
		cancels, closing := s.cancels, s.closing
		s.cancels = nil
		s.mu.Unlock()

		for rest := items; len(rest) > 0 || len(cancels) > 0; {
			m := &wire.HostMessage{Items: rest[:portion(rest)]}
			rest = rest[len(m.Items):]
			if len(rest) == 0 { // not before the items that they are about
				m.Cancels, cancels = cancels, nil
			}
			if s.rpc.Send(m) != nil {
				return // the reader has the cause
			}
		}
		clear(items)
		if closing {
			_ = s.rpc.CloseSend()
			return
		}
	}
}

// portion is how many of the items go into one message.
func portion(items []*wire.Item) int {
	size := 0
	for i, it := range items {
		size += len(it.Payload) + len(it.Previous) + len(it.Key) + len(it.Scope) + len(it.IdempotencyKey)
		if i == batchItems || i > 0 && size > batchBytes {
			return i
		}
	}
	return len(items)
}

// read delivers what the plugin sends until the stream ends.
func (s *Stream) read() {
	for {
		m, err := s.rpc.Recv()
		if err != nil {
			s.err = streamError(err)
			break
		}
		if m.Credits > 0 {
			s.mu.Lock()
			s.credits += int(m.Credits)
			close(s.more)
			s.more = make(chan struct{})
			s.mu.Unlock()
		}
		if len(m.Progress) > 0 && s.events.Progress != nil {
			s.events.Progress(m.Progress)
		}
		if len(m.Results) > 0 {
			s.events.Results(m.Results)
		}
	}
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.cancel()
	close(s.done)
}

func streamError(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	if status.Code(err) == codes.ResourceExhausted {
		return errors.Join(ErrTooLarge, err)
	}
	return err
}
