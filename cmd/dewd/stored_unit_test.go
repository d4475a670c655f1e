package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	apidaemon "github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/runtime/containerd"
	"github.com/dewrun/dew/store"
)

// stored is the expected content of a stored root: NAME.json next to NAME.tar.zst in
// testdata/stored.
type stored struct {
	Instance      string                     `json:"instance"`      // ID of the running instance of ticker
	Running       json.RawMessage            `json:"running"`       // the instance as testdata/instance records it
	Undeliverable string                     `json:"undeliverable"` // ID of a notification
	Campaign      string                     `json:"campaign"`
	Answers       map[string]json.RawMessage `json:"answers"` // responses of the old dewd, by path
}

// eachStored runs a test for every stored root; name is its path without extension.
func eachStored(t *testing.T, fn func(t *testing.T, name string, want stored)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "stored", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("stored roots = %v, %v, want some", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".json")
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want stored
			if err := json.Unmarshal(b, &want); err != nil {
				t.Fatal(err)
			}
			fn(t, name, want)
		})
	}
}

// unpackStored unpacks the wanted files of a stored root into a folder.
func unpackStored(t testing.TB, name, dir string, wanted func(path string) bool) {
	t.Helper()
	f, err := os.Open(name + ".tar.zst")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && wanted(h.Name) {
			err = unpackFile(filepath.Join(dir, h.Name), h, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpackFile(path string, h *tar.Header, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := h.FileInfo().Mode()
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		if err = os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, path)
	case tar.TypeChar:
		err = unix.Mknod(path, unix.S_IFCHR|uint32(mode.Perm()), int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	default:
		var b []byte
		if b, err = io.ReadAll(r); err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(path, h.Uid, h.Gid)
	}
	return errors.Join(err, os.Chmod(path, mode.Perm()|mode&fs.ModeSticky), os.Chtimes(path, h.ModTime, h.ModTime))
}

// changing are the keys whose values can differ: they show a present state, or count
// resources.
var changing = []string{"links", "pagination", "updated_at", "total_results", "totalResults"}

// lostIn lists the parts of an old value that a new one lacks, except for the ignored
// keys. It compares resources by their guid, because a list can have grown.
func lostIn(at string, want, got any, ignored ...string) (lost []string) {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s = %v, want an object", at, got)}
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if slices.Contains(ignored, key) {
				continue
			}
			if _, ok := have[key]; !ok {
				lost = append(lost, fmt.Sprintf("%s.%s is not there, want %v", at, key, want[key]))
				continue
			}
			lost = append(lost, lostIn(at+"."+key, want[key], have[key], ignored...)...)
		}
		return lost
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) < len(want) {
			return []string{fmt.Sprintf("%s = %v, want at least %d elements", at, got, len(want))}
		}
		for i, v := range want {
			lost = append(lost, lostIn(fmt.Sprintf("%s[%d]", at, i), v, twin(v, have, i), ignored...)...)
		}
		return lost
	}
	if !reflect.DeepEqual(want, got) {
		return []string{fmt.Sprintf("%s = %v, want %v", at, got, want)}
	}
	return nil
}

// twin finds the element of a list with the same identity, otherwise the one with the
// same index.
func twin(v any, list []any, i int) any {
	for _, key := range []string{"guid", "id", "client_id", "instance"} {
		id := member(v, key)
		if id == nil {
			continue
		}
		for _, other := range list {
			if member(other, key) == id && member(other, "index") == member(v, "index") {
				return other
			}
		}
		return nil
	}
	return list[i]
}

func member(v any, key string) any {
	o, _ := v.(map[string]any)
	return o[key]
}

func TestLostIn(t *testing.T) {
	for _, tt := range []struct {
		name, want, got string
		lost            []string
	}{
		{"the same", `{"a":[1,{"guid":"x","b":null}]}`, `{"a":[1,{"guid":"x","b":null}]}`, nil},
		{"more", `{"a":1,"l":[{"guid":"x"}]}`, `{"a":1,"b":2,"l":[{"guid":"y"},{"guid":"x","c":3}]}`, nil},
		{"changing", `{"updated_at":"then"}`, `{"updated_at":"now"}`, nil},
		{"a key", `{"a":1}`, `{"b":1}`, []string{".a is not there, want 1"}},
		{"a value", `{"a":1}`, `{"a":2}`, []string{".a = 2, want 1"}},
		{"a resource", `[{"guid":"x"}]`, `[{"guid":"y"}]`, []string{"[0] = <nil>, want an object"}},
		{"an element", `[1,2]`, `[1]`, []string{" = [1], want at least 2 elements"}},
		{"a kind", `{"a":{}}`, `{"a":[]}`, []string{".a = [], want an object"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want, got any
			if err := errors.Join(json.Unmarshal([]byte(tt.want), &want), json.Unmarshal([]byte(tt.got), &got)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(lostIn("", want, got, changing...), tt.lost); diff != "" {
				t.Errorf("lost (-got +want):\n%s", diff)
			}
		})
	}
}

// Every value of an older dewd is decoded into its present type without unknown fields,
// and is stored again without loss. A Go field that was renamed without a tag fails
// here.
func TestStoredValues(t *testing.T) {
	db := declareAll(t)
	eachStored(t, func(t *testing.T, name string, _ stored) {
		dir := t.TempDir()
		unpackStored(t, name, dir, func(path string) bool { return path == "root/dew.db" })
		b, err := bbolt.Open(filepath.Join(dir, "root", "dew.db"), 0o600, &bbolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		count := map[string]int{}
		err = b.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(bucket []byte, in *bbolt.Bucket) error {
				values := in.Bucket([]byte("values"))
				if values == nil {
					return nil
				}
				return values.ForEach(func(key, raw []byte) error {
					count[string(bucket)]++
					for _, lost := range lostValue(db, string(bucket), raw) {
						t.Errorf("%s %q: %s", bucket, key, lost)
					}
					return nil
				})
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, bucket := range db.Declared() {
			if count[bucket] == 0 {
				t.Logf("bucket %s has no value in this root", bucket)
			}
		}
		if len(count) < 40 {
			t.Errorf("buckets with values = %d, want at least 40: %v", len(count), count)
		}
	})
}

// lostValue lists the parts of a stored value that are lost when it is read and stored
// again.
func lostValue(db *store.DB, bucket string, raw []byte) []string {
	again, err := db.Recode(bucket, raw)
	var want, got any
	if err = errors.Join(err, json.Unmarshal(raw, &want)); err == nil {
		err = json.Unmarshal(again, &got)
	}
	if err != nil {
		return []string{err.Error()}
	}
	return lostIn("", want, got)
}

// declareAll opens all parts of a daemon that store data, on an empty root and without
// containerd.
func declareAll(t *testing.T) *store.DB {
	t.Helper()
	cfg := defaultConfig()
	cfg.Root, cfg.Run, cfg.PublicURL, cfg.Init = t.TempDir(), t.TempDir(), "http://127.0.0.1", filepath.Join(t.TempDir(), "dew-init")
	cfg.LogReserve, cfg.Subnet = 1<<20, netip.MustParsePrefix("10.202.240.0/20")
	log := slog.New(slog.DiscardHandler)
	d := &daemon{cfg: cfg, log: log, engine: (*containerd.Engine)(nil), // not used
		aside: newSetAside(cfg.Root, log), metrics: apidaemon.NewMetrics(), ready: make(chan struct{}), sweep: make(chan struct{}, 1), stale: make(chan struct{}, 1)}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	for _, step := range []func(context.Context) error{
		d.openStore, d.openLogs, d.openDroplets,
		func(ctx context.Context) (err error) { d.subnet, err = d.chooseSubnet(ctx); return err },
		d.openSupervisor, d.openServices,
		func(context.Context) error { return d.openAuth() },
		func(context.Context) (err error) {
			d.notify, err = openNotify(notifyParts{
				DB: d.db, Auth: d.auth, Roles: d.roles, Registry: d.registry, Exits: d.sup.Exits(), PublicURL: d.cfg.PublicURL, Domain: d.cfg.Domain,
				Space: d.packages.Space, Logger: d.log,
			}, d.cfg.Mailing)
			return err
		},
	} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return d.db
}
