package route

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"
)

// BenchmarkProxy compares the router with a bare httputil.ReverseProxy as the baseline,
// with the same client and app in turn. ratio is router / baseline.
func BenchmarkProxy(b *testing.B) {
	for name, size := range map[string]int{"small": 20, "64KiB": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			answer := make([]byte, size)
			w := newWorld(b, routeTo("shop", "", "a"))
			w.run()
			s := w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(answer) }))
			to, err := url.Parse(s.URL)
			if err != nil {
				b.Fatal(err)
			}
			floor := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite:    func(pr *httputil.ProxyRequest) { pr.SetURL(to); pr.SetXForwarded() },
				Transport:  &http.Transport{MaxIdleConnsPerHost: maxIdle, DisableCompression: true},
				BufferPool: &buffers{},
			})
			defer floor.Close()
			var took [2]time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				took[0] += fetch(b, w.front.Client(), floor.URL)
				took[1] += fetch(b, w.front.Client(), w.front.URL)
			}
			b.ReportMetric(float64(took[0].Nanoseconds())/float64(b.N), "floor-ns/op")
			b.ReportMetric(float64(took[1].Nanoseconds())/float64(b.N), "router-ns/op")
			b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
		})
	}
}

func fetch(b *testing.B, client *http.Client, address string) time.Duration {
	began := time.Now()
	req, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Host = "shop.dew.localhost"
	res, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatal(res.StatusCode, err)
	}
	return time.Since(began)
}

// BenchmarkMatch measures the lookup of an instance for a host and path in a table of
// 1,000 routes.
func BenchmarkMatch(b *testing.B) {
	w := newWorld(b, manyRoutes()...)
	for i := range 4 {
		w.refuses("a", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := w.router.table.Load().match("host248.dew.localhost:8080", "/api/v2/things").pick(nil); !ok {
			b.Fatal("no instance")
		}
	}
}
