package conformance

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
)

func checkName(ctx context.Context, t Target) error {
	name, named := strings.CutPrefix(filepath.Base(t.Spec.Path), pluginstore.Prefix)
	if !named || t.Embedded {
		return notChecked("the program is not called " + pluginstore.Prefix + "NAME")
	}
	s, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer s.Kill()
	if s.d.Name != name {
		return fmt.Errorf("the program is called %s%s, and the plugin calls itself %q", pluginstore.Prefix, name, s.d.Name)
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
	if runtime.GOOS != "linux" {
		return notChecked("this system does not tell which processes a plugin has started")
	}
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
		return fmt.Errorf("after its end %d processes that it had started were still there, outside of its process group", len(pids))
	}
	return nil
}
