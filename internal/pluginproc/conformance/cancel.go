package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

func checkCancel(ctx context.Context, s *session) error {
	s.stream.Cancel(noSuchItem, 1, wire.Cancel_REASON_CANCELLED)
	first, second := s.item(badPayload), s.item(badPayload)
	if err := s.work(ctx, first); err != nil {
		return err
	}
	s.stream.Cancel(first.Id, first.Attempt, wire.Cancel_REASON_LEASE_LOST)
	if err := s.work(ctx, second); err != nil {
		return err
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	_, err := s.result(first.Id)
	return err
}

// fitting are the outcomes beside DONE, SKIPPED and UNKNOWN that an item may have after a cancel, by its reason.
// Work that was done before the cancel came may be reported; interrupted work is no failure.
var fitting = map[wire.Cancel_Reason]wire.Result_Outcome{
	wire.Cancel_REASON_CANCELLED:  wire.Result_OUTCOME_CANCELLED,
	wire.Cancel_REASON_LEASE_LOST: wire.Result_OUTCOME_RELEASED,
	wire.Cancel_REASON_STOPPING:   wire.Result_OUTCOME_RELEASED,
	wire.Cancel_REASON_TIMEOUT:    wire.Result_OUTCOME_FAILED,
}

func checkCancelInWork(ctx context.Context, s *session) error {
	for _, reason := range []wire.Cancel_Reason{
		wire.Cancel_REASON_CANCELLED, wire.Cancel_REASON_LEASE_LOST, wire.Cancel_REASON_STOPPING, wire.Cancel_REASON_TIMEOUT,
	} {
		items := s.examples()
		if err := s.send(ctx, items...); err != nil {
			return err
		}
		for _, it := range items {
			s.stream.Cancel(it.Id, it.Attempt, reason)
		}
		if err := s.inTime(ctx, items); err != nil {
			return fmt.Errorf("after a cancel with %v: %w", reason, err)
		}
		for _, it := range items {
			r, err := s.result(it.Id)
			if err != nil {
				return err
			}
			allowed := []wire.Result_Outcome{wire.Result_OUTCOME_DONE, wire.Result_OUTCOME_SKIPPED, wire.Result_OUTCOME_UNKNOWN,
				fitting[reason]}
			if !slices.Contains(allowed, r.Outcome) {
				return fmt.Errorf("after a cancel with %v, the item %s is %s", reason, it.Payload, said(r))
			}
		}
	}
	return nil
}

// inTime waits for the results of items that were told to end.
func (s *session) inTime(ctx context.Context, items []*wire.Item) error {
	bound := s.target.bound(stopBound)
	bounded, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("%v have passed", bound))
	defer cancel()
	return s.wait(bounded, items...)
}

func checkTimeout(ctx context.Context, s *session) error {
	s.state = spoiled // it may go on with what it has ended
	items := s.examples()
	for _, it := range items {
		it.TimeoutMs = 1
	}
	if err := s.send(ctx, items...); err != nil {
		return err
	}
	if err := s.inTime(ctx, items); err != nil {
		return fmt.Errorf("with a timeout of 1 ms: %w", err)
	}
	for _, it := range items {
		r, err := s.result(it.Id)
		if err != nil {
			return err
		}
		if r.Outcome == wire.Result_OUTCOME_FAILED && r.Ending == wire.Result_ENDING_RETURNED && r.Code == "" {
			return fmt.Errorf("with a timeout of 1 ms, the item %s is %s", it.Payload, said(r))
		}
	}
	return nil
}
