package droplet

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/droplet/buildcache"
	"github.com/dewrun/dew/droplet/inspect"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
)

// goLanguage names the start caches of Go apps. They have the compiled standard library,
// which takes most of the time of a first build.
const goLanguage = "go"

// goVersion is the result of the Go buildpack with the version of Go.
const goVersion = "go-version"

// startLayers returns the layer with the cache that a new app begins with, if there is
// one for its language.
func startLayers(b *Builds, bits io.ReadSeeker, st stack.Stack, packs []chosen) ([]Layer, error) {
	file, ok := b.caches.Start(goLanguage, st.ID)
	if !ok || goPack(packs) < 0 {
		return nil, nil
	}
	if isGo, err := inspect.Has(bits, pool.Top, "go.mod"); err != nil || !isGo {
		return nil, err
	}
	return []Layer{{Path: buildcache.Folder, Open: func() (io.ReadCloser, error) { return os.Open(file) }}}, nil
}

// goPack returns the index of the built-in Go buildpack, or -1.
func goPack(packs []chosen) int {
	return slices.IndexFunc(packs, func(h chosen) bool { return h.builtIn && h.name == GoBuildpack })
}

// startWork is the creation of a start cache after the build of an app. It runs in a
// container of that app, without its files and variables.
type startWork struct {
	app, version string
	stack        stack.Stack
	pack         chosen
}

// maxVersion limits the version of a language that a build can report.
const maxVersion = 200

// requestStartCache lets Run create a start cache after a build that would have used one.
func requestStartCache(b *Builds, t stagedFiles, st stack.Stack, results map[string]string) {
	version, i := firstLine(results[goVersion]), goPack(t.packs)
	if !b.o.StartCaches || i < 0 || version == "" || len(version) > maxVersion || !b.caches.NeedsStart(goLanguage, st.ID, version) {
		return
	}
	select {
	case b.starts <- startWork{app: t.droplet.App, version: version, stack: st, pack: t.packs[i]}:
	default: // another one is waiting, and the next build requests this one again
	}
}

// startDelay is the time between a build and the creation of a start cache. The app
// starts during that time, and often another push follows.
const startDelay = 10 * time.Second

// createStartCache builds the app that imports the standard library, and stores its cache.
// No build depends on the result: a new app without it compiles more.
func createStartCache(ctx context.Context, b *Builds, w startWork) {
	own, done := b.aside(ctx, w)
	if done == nil {
		return
	}
	select {
	case <-time.After(startDelay):
	case <-own.Done():
	}
	err := runStartWork(own, b, w)
	interrupted := own.Err() != nil
	done(err == nil || interrupted)
	switch {
	case err == nil:
		b.o.Logger.Info("new Go apps begin with the compiled standard library", "stack", w.stack.Name, "version", w.version)
	case !interrupted:
		b.o.Logger.Warn("cannot prepare the build cache of new Go apps; their first builds take longer", "stack", w.stack.Name, "err", err)
	}
}

func runStartWork(ctx context.Context, b *Builds, w startWork) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	plan, err := planTar([]chosen{w.pack}, w.stack, false)
	if err != nil {
		return err
	}
	files, err := startAppTar()
	if err != nil {
		return err
	}
	guid := uuid.NewString()
	s := Staging{
		Build: guid, App: w.app, Stack: w.stack, Dir: "/home/vcap",
		// Its output would confuse the developers of the app.
		Command:  "exec nice -n 19 " + w.stack.Shell + " /tmp/buildpacks/stage.sh >/dev/null 2>&1",
		MemoryMB: b.o.MemoryMB, DiskMB: b.o.DiskMB, MaxFiles: maxStagedFiles, Timeout: b.o.Timeout, Space: b.packages.Space,
		Layers: append([]Layer{
			{Path: "/tmp", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }},
			{Path: "/tmp/buildpacks", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plan)), nil }},
			{Path: "/tmp/buildpacks/0", Strip: w.pack.strip, Open: w.pack.open},
		}, helperLayers([]chosen{w.pack})...),
	}
	return b.o.Builder.Build(ctx, s, func(ctx context.Context, code int, files Files) error {
		results, err := readResult(ctx, files)
		if err != nil {
			return err
		}
		if code != 0 {
			why := cmp.Or(firstLine(results["reason"]), firstLine(results["missing"]), firstLine(results["failed"]))
			return fmt.Errorf("the build exited with status %d: %s", code, why)
		}
		version := firstLine(results[goVersion])
		if err := b.caches.StoreStart(ctx, goLanguage, w.stack.ID, version, files); err != nil || version == w.version {
			return err
		}
		return fmt.Errorf("the stack has %q, but a build reported %q", version, w.version)
	})
}

// startImports are the packages of the standard library that apps import, directly or
// through their modules. Go 1.19 has all of them.
const startImports = `archive/tar archive/zip compress/bzip2 compress/gzip compress/lzw compress/zlib container/heap container/list
container/ring crypto/aes crypto/cipher crypto/des crypto/dsa crypto/ecdsa crypto/ed25519 crypto/elliptic crypto/hmac crypto/md5
crypto/rc4 crypto/rsa crypto/sha1 crypto/sha256 crypto/sha512 crypto/subtle crypto/tls crypto/x509 database/sql embed encoding/ascii85
encoding/base32 encoding/base64 encoding/binary encoding/csv encoding/gob encoding/hex encoding/json encoding/pem encoding/xml expvar
flag go/ast go/format go/parser hash/adler32 hash/crc32 hash/crc64 hash/fnv hash/maphash html/template image/draw image/gif image/jpeg
image/png index/suffixarray io/ioutil log/syslog math/big math/cmplx math/rand mime/multipart mime/quotedprintable net/http/cgi
net/http/cookiejar net/http/fcgi net/http/httptest net/http/httputil net/http/pprof net/mail net/rpc/jsonrpc net/smtp net/textproto
net/url os/exec os/signal os/user plugin regexp runtime/debug runtime/metrics runtime/trace strconv testing/fstest testing/iotest
testing/quick text/scanner text/tabwriter text/template time/tzdata unicode/utf16`

// startAppTar returns an app that imports the standard library, as a package.
func startAppTar() ([]byte, error) {
	main := "package main\n\nimport (\n"
	for _, name := range strings.Fields(startImports) {
		main += fmt.Sprintf("\t_ %q\n", name)
	}
	main += ")\n\nfunc main() {}\n"
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: pool.Top + "/", Mode: 0o755, ModTime: pool.Time}),
		addFile(w, pool.Top+"/go.mod", []byte("module start\n\ngo 1.19\n")),
		addFile(w, pool.Top+"/main.go", []byte(main)),
		addFile(w, pool.Top+"/later.go", []byte("//go:build go1.21\n\npackage main\n\nimport _ \"log/slog\"\n")),
		w.Close(),
	)
	return out.Bytes(), err
}
