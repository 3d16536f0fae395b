package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
)

func checkName(ctx context.Context, t Target) error {
	s, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	if t.Name != "" && s.d.Name != t.Name {
		return fmt.Errorf("it is called %s here, and calls itself %q", t.Name, s.d.Name)
	}
	return nil
}

func checkSize(ctx context.Context, t Target) error {
	s, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	return pluginproc.CheckDescription(s.d)
}

// leaveTime is for a plugin that only worked its examples to end.
const leaveTime = 5 * time.Second

func checkLeftBehind(ctx context.Context, t Target) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	if err := s.work(ctx, append(s.examples(), s.item(badPayload))...); err != nil {
		return err
	}
	s.Stop(ctx, leaveTime)
	if pids := s.Left(); len(pids) > 0 {
		return fmt.Errorf("processes that it had started were still there after its end, outside of its process group: %d", len(pids))
	}
	return nil
}
