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

// Events are the functions that get the plugin's messages. They are called one at a time, in order. While one runs,
// nothing more is read, so a slow host slows the plugin down.
type Events struct {
	// Results of attempts, all of one message. Required. The function may keep the slice and change it.
	Results func([]*wire.Result)
	// Progress gets reports of progress; nil means that they are dropped.
	Progress func([]*wire.Progress)
}

// Bounds of one message to the plugin.
const (
	batchItems = 1000
	batchBytes = 1 << 20 // of payloads and keys; a single item may be a little larger
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

	wake chan struct{} // wakes the writer; holds one value
	done chan struct{} // closed after the last event
	err  error         // why the stream ended, set before done is closed; nil if the plugin closed it
}

// OpenStream opens the stream of a configured plugin. The stream ends when the plugin closes it after Close, when the
// connection breaks, or with Abort.
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

// Send sends items to the plugin, and uses one credit for each. It does not wait. If there are too few credits, it
// sends none and returns ErrCredits; after the end or Close it returns ErrEnded. The items must not be changed
// afterwards.
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

// Cancel tells the plugin to end an item that was sent. It does not wait. The item's result still arrives, or has
// arrived before.
func (s *Stream) Cancel(id, attempt int64, reason wire.Cancel_Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.cancels = append(s.cancels, &wire.Cancel{Id: id, Attempt: attempt, Reason: reason})
		s.signal()
	}
}

// Credits is the number of items that may be sent now.
func (s *Stream) Credits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.credits
}

// WaitCredits waits until there is at least one credit, and returns how many there are. Errors: ErrEnded, the cause of
// ctx.
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

// Close tells the plugin that no more items come. The plugin sends its last results and ends the stream. Close does not
// wait.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.signal()
}

// Abort ends the stream at once; results on their way are lost.
func (s *Stream) Abort() { s.cancel() }

// Ended is closed when the stream has ended and all its events were delivered.
func (s *Stream) Ended() <-chan struct{} { return s.done }

// Err is the cause of the stream's end. Call it after Ended is closed. It is nil if the plugin ended the stream.
func (s *Stream) Err() error { return s.err }

// signal wakes the writer. The caller holds mu.
func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write sends the items and cancels that have come since the last message, in as few messages as the bounds allow.
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
			if len(rest) == 0 { // a cancel must not come before its item
				m.Cancels, cancels = cancels, nil
			}
			if s.rpc.Send(m) != nil {
				return // Recv in read returns the cause
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
