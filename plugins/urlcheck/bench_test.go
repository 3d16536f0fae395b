package urlcheck

import (
	"net/http"
	"testing"
	"time"
)

// BenchmarkCheck checks URLs of one local server, 64 at a time; the server's work is in the
// figure.
func BenchmarkCheck(b *testing.B) {
	ok := func(http.ResponseWriter, *http.Request) {}
	ca := newCA(b)
	cert := ca.issue("127.0.0.1", time.Now().Add(time.Hour))
	for _, bm := range []struct{ name, url string }{
		{"http1", serve(b, ok).URL},
		{"https", serveTLS(b, cert, false, ok).URL},
		{"http2", serveTLS(b, cert, true, ok).URL},
	} {
		b.Run(bm.name, func(b *testing.B) {
			cfg := defaults()
			cfg.PerHost = 64
			c := open(b, cfg)
			c.Transport.TLSClientConfig.RootCAs = ca.pool
			b.SetParallelism(32) // times GOMAXPROCS
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.check(b.Context(), fine(bm.url)); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
		})
	}
}
