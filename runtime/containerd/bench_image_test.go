//go:build bench

package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// BenchmarkImage alternates between starts of a small and a large droplet, and measures
// the disk space of five instances of the large one.
func BenchmarkImage(b *testing.B) {
	w := newWorld(b)
	small, large := w.sized(b, 1<<20), w.sized(b, 300<<20)
	var one, many series
	for b.Loop() {
		for _, sha := range []string{small, large} { // the first start creates the image
			w.image = sha
			w.oneStart(b)
		}
		for range repetitions(b, 20) {
			for sha, s := range map[string]*series{small: &one, large: &many} {
				w.settle(b)
				w.image = sha
				_, running := w.oneStart(b)
				*s = append(*s, running)
			}
		}
	}
	w.image = large
	var containers []runtime.Container
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	for i := range 5 {
		s := w.startSpec(b)
		addr := s.Address.Addr()
		for range i {
			addr = addr.Next()
		}
		s.Address = netip.PrefixFrom(addr, s.Address.Bits())
		c, err := w.engine.Start(ctx, s)
		if err != nil {
			b.Fatal(err)
		}
		containers = append(containers, c)
	}
	var grown int64 // each has its own layer on the same image
	for _, c := range containers {
		bytes, _, err := c.(*container).Written(ctx)
		if err != nil {
			b.Fatal(err)
		}
		grown += bytes
		if err := c.Delete(ctx); err != nil {
			b.Fatal(err)
		}
	}
	r := newResult(b)
	b.ReportMetric(ms(one.median()), "1MB-ms")
	b.ReportMetric(ms(many.median()), "300MB-ms")
	b.ReportMetric(float64(grown)/(1<<20), "MB-five-instances")
	r.row(fmt.Sprintf("%d turns", len(one)), "median", "p90", "p99", "max")
	r.spread("image of 1 MB", one)
	r.spread("image of 300 MB", many)
	r.row("five instances of 300 MB take", fmt.Sprintf("%.1f MB more", float64(grown)/(1<<20)))
	r.print("start by the size of the image")
}

// sized adds an image with one file to the image store.
func (w *world) sized(b *testing.B, size int) string {
	b.Helper()
	data := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = rng.Read(data) // never fails
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	for _, h := range []*tar.Header{{Typeflag: tar.TypeDir, Name: "app/", Mode: 0o755}, {Typeflag: tar.TypeReg, Name: "app/data", Mode: 0o644, Size: int64(size)}} {
		if err := t.WriteHeader(h); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := t.Write(data); err != nil {
		b.Fatal(err)
	}
	if err := t.Close(); err != nil {
		b.Fatal(err)
	}
	sha, err := w.droplets.AddImage(&out)
	if err != nil {
		b.Fatal(err)
	}
	return sha
}
