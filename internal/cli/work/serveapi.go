package work

import (
	"context"
	"net/http"
	"sync"

	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/ui"
)

// serveAPI serves the HTTP API beside the work if the config has an address for it, until end is called.
func (s *server) serveAPI(ctx context.Context) (end func(), err error) {
	c := s.Config.API
	if c.Listen == "" {
		return func() {}, nil
	}
	guard, err := newGuard(s.App, c.Listen, c.Auth)
	if err != nil {
		return nil, err
	}
	at, err := listenAt(ctx, c.Listen)
	if err != nil {
		return nil, err
	}
	h, done, err := openAPI(ctx, s.App, s.ledger, guard, c.Prefix)
	if err != nil {
		at.Close()
		return nil, err
	}
	s.api = h
	s.shown.Store(s.Config)
	var served http.Handler = h
	if s.Config.UI.Serve {
		o := ui.Options{API: h, Admit: guard.AdmitPage, Name: ledgerName(s.App, s.ledger.Address), Prefix: h.Prefix,
			Trace:    func(id string) string { return s.shown.Load().TraceLink(id) },
			Verdicts: func(kind string) []string { return verdictsOf(s.shown.Load(), kind) }}
		if c.Auth != "none" {
			o.Sessions = ui.NewSessions()
		}
		served = withAPI(h, ui.New(o))
		s.Log.Info("the pages are served", "at", "http://"+at.Addr().String()+h.Prefix+"/")
	}
	s.Log.Info("the API is served", "at", at.Addr().String(), "paths", h.Prefix+api.Base)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var both sync.WaitGroup
	both.Go(func() { h.Run(life) })
	both.Go(func() {
		if err := answerAPI(life, at, withMCP(h, served)); err != nil {
			s.Log.Error("the API is not served any more", "error", err)
		}
	})
	return func() {
		stop()
		both.Wait()
		done()
	}, nil
}
