package store

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
)

// thing is a stored value of the tests.
type thing struct {
	Name  string
	Group string
	N     int
	Hook  func() `json:"-"`
}

func byName(v thing) string  { return v.Name }
func byGroup(v thing) string { return v.Group }

func things(db *DB) Bucket[thing] {
	return In(db, "things", Unique("name", byName), Index("group", byGroup))
}

func open(t *testing.T, path string) *DB {
	t.Helper()
	db, err := Open(path, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func fresh(t *testing.T) *DB {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "dew.db"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verify checks that the indexes on disk match the values on disk.
func verify[T any](t *testing.T, declared Bucket[T]) {
	t.Helper()
	b, ok := declared.(*bucket[T])
	if !ok {
		t.Fatalf("a %T, want a bucket of a database", declared)
	}
	err := b.raw.read(func(s *txBucket) error {
		for _, x := range b.raw.indexes {
			want := []string{}
			must(t, b.raw.scan(s, x, func(key, entry string) error {
				if entry != "" {
					want = append(want, string(indexKey(entry, key)))
				}
				return nil
			}))
			slices.Sort(want)
			got := []string{}
			must(t, s.each(s.index(x.name), nil, func(k, _ []byte) error {
				if _, _, err := splitIndexKey(k); err != nil {
					t.Errorf("index %s has %q: %v", x.name, k, err)
				}
				got = append(got, string(k))
				return nil
			}))
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("index %s (-got +want):\n%s", x.name, diff)
			}
		}
		return nil
	})
	must(t, err)
}

func names(vs []thing) string {
	var out []string
	for _, v := range vs {
		out = append(out, v.Name)
	}
	return strings.Join(out, " ")
}

func TestBucket(t *testing.T) {
	db := fresh(t)
	b := things(db)
	if _, err := b.Get("k1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get from an empty store = %v, want ErrNotFound", err)
	}
	if vs, err := b.All(); err != nil || len(vs) != 0 {
		t.Errorf("All of an empty store = %v, %v", vs, err)
	}
	if vs, err := b.By("group", "g"); err != nil || len(vs) != 0 {
		t.Errorf("By in an empty store = %v, %v", vs, err)
	}
	must(t, b.Delete("k1"))
	must(t, b.Put("k2", thing{Name: "two", Group: "g"}))
	must(t, b.Put("k1", thing{Name: "one", Group: "g"}))
	must(t, b.Put("k3", thing{Name: "three"}))
	must(t, b.Put("x1", thing{Name: "ex", Group: "g2"}))
	for _, c := range []struct {
		what string
		get  func() ([]thing, error)
		want string
	}{
		{"All", b.All, "one two three ex"},
		{"Prefix k", func() ([]thing, error) { return b.Prefix("k") }, "one two three"},
		{"Prefix none", func() ([]thing, error) { return b.Prefix("z") }, ""},
		{"By group", func() ([]thing, error) { return b.By("group", "g") }, "one two"},
		{"By no group", func() ([]thing, error) { return b.By("group", "") }, ""},
		{"By name", func() ([]thing, error) { return b.By("name", "three") }, "three"},
	} {
		vs, err := c.get()
		if got := names(vs); err != nil || got != c.want {
			t.Errorf("%s = %q, %v, want %q", c.what, got, err, c.want)
		}
	}
	v, err := b.Update("k1", func(v *thing) error { v.Name, v.Group = "uno", "g2"; return nil })
	if err != nil || v.Name != "uno" {
		t.Errorf("Update = %+v, %v", v, err)
	}
	if vs, _ := b.By("group", "g2"); names(vs) != "uno ex" {
		t.Errorf("By after Update = %q, want uno ex", names(vs))
	}
	if _, err := b.Update("none", func(*thing) error { return nil }); !errors.Is(err, ErrNotFound) {
		t.Errorf("Update of what is not there = %v, want ErrNotFound", err)
	}
	must(t, b.Delete("k2"))
	if vs, _ := b.By("group", "g"); len(vs) != 0 {
		t.Errorf("By after Delete = %q, want nothing", names(vs))
	}
	verify(t, b)
}

func TestUniqueIndex(t *testing.T) {
	b := things(fresh(t))
	must(t, b.Put("k1", thing{Name: "one"}))
	must(t, b.Put("k1", thing{Name: "one", N: 1})) // its own name
	must(t, b.Put("k2", thing{Name: "two"}))
	must(t, b.Put("k3", thing{}))
	must(t, b.Put("k4", thing{})) // an empty name is not in the index
	err := b.Put("k2", thing{Name: "one"})
	var taken *TakenError
	if !errors.Is(err, ErrTaken) || !errors.As(err, &taken) {
		t.Fatalf("error = %v, want ErrTaken", err)
	}
	if want := (TakenError{Bucket: "things", Index: "name", Value: "one", Key: "k1"}); *taken != want {
		t.Errorf("error = %+v, want %+v", *taken, want)
	}
	if !strings.Contains(err.Error(), `name "one"`) {
		t.Errorf("text %q does not name index and value", err)
	}
	if _, err := b.Update("k2", func(v *thing) error { v.Name = "one"; return nil }); !errors.Is(err, ErrTaken) {
		t.Errorf("Update = %v, want ErrTaken", err)
	}
	if v, _ := b.Get("k2"); v.Name != "two" {
		t.Errorf("refused value was kept: %+v", v)
	}
	must(t, b.Delete("k1"))
	must(t, b.Put("k2", thing{Name: "one"}))
	verify(t, b)
}

func TestRefusedKeys(t *testing.T) {
	b := things(fresh(t))
	long := strings.Repeat("x", bbolt.MaxKeySize)
	for name, err := range map[string]error{
		"empty key":  b.Put("", thing{}),
		"long key":   b.Put(long+"x", thing{}),
		"long index": b.Put("k", thing{Name: long}),
	} {
		if err == nil {
			t.Errorf("%s was not refused", name)
		}
	}
	if vs, err := b.All(); err != nil || len(vs) != 0 {
		t.Errorf("All = %v, %v, want nothing", vs, err)
	}
	verify(t, b)
}

// A transaction over several buckets changes all of them or none, and sees its own
// changes.
func TestTransaction(t *testing.T) {
	db := fresh(t)
	a, b := things(db), In[string](db, "words")
	must(t, a.Put("k1", thing{Name: "one", Group: "g"}))
	stop := errors.New("stop")
	err := db.Update(func(tx *Tx) error {
		must(t, a.With(tx).Delete("k1"))
		must(t, a.With(tx).Put("k2", thing{Name: "one", Group: "g"}))
		must(t, b.With(tx).Put("w", "word"))
		if v, err := b.With(tx).Get("w"); err != nil || v != "word" {
			t.Errorf("the transaction sees %q, %v", v, err)
		}
		if vs, err := a.With(tx).By("name", "one"); err != nil || len(vs) != 1 {
			t.Errorf("the transaction sees %v, %v", vs, err)
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Fatalf("Update = %v, want %v", err, stop)
	}
	if _, err := b.Get("w"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a given up word is there: %v", err)
	}
	if vs, _ := a.By("group", "g"); names(vs) != "one" {
		t.Errorf("By after giving up = %q, want one", names(vs))
	}
	verify(t, a)

	// After a failed write, a transaction can continue with something else.
	must(t, db.Update(func(tx *Tx) error {
		if err := a.With(tx).Put("k9", thing{Name: "one"}); !errors.Is(err, ErrTaken) {
			t.Errorf("Put = %v, want ErrTaken", err)
		}
		return a.With(tx).Put("k9", thing{Name: "nine"})
	}))
	verify(t, a)

	must(t, db.View(func(tx *Tx) error {
		if err := a.With(tx).Put("k1", thing{}); err == nil {
			t.Error("a reading transaction wrote")
		}
		return nil
	}))
}

func TestTransactionEndsWithItsFunction(t *testing.T) {
	db := fresh(t)
	b := things(db)
	var kept *Tx
	must(t, db.Update(func(tx *Tx) error { kept = tx; return nil }))
	if err := b.With(kept).Put("k", thing{}); err == nil {
		t.Error("Put after the end succeeded")
	}
	if _, err := b.With(kept).Get("k"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("Get after the end = %v, want an error that says so", err)
	}
}

// A panic in a transaction leaves no lock and changes nothing.
func TestPanicInTransaction(t *testing.T) {
	db := fresh(t)
	b := things(db)
	func() {
		defer func() { _ = recover() }()
		_ = db.Update(func(tx *Tx) error {
			must(t, b.With(tx).Put("k", thing{Name: "one"}))
			panic("bug")
		})
	}()
	if _, err := b.Get("k"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get = %v, want ErrNotFound", err)
	}
	must(t, b.Put("k", thing{Name: "one"}))
	verify(t, b)
}

// A write that fails half-way is not committed, even if the caller continues.
func TestBrokenWriteIsNotCommitted(t *testing.T) {
	db := fresh(t)
	b := things(db)
	must(t, b.Put("k1", thing{Name: "one"}))
	must(t, db.bolt.Update(func(tx *bbolt.Tx) error { // a value that cannot be read
		return tx.Bucket([]byte("things")).Bucket(valuesBucket).Put([]byte("k1"), []byte("{"))
	}))
	err := db.Update(func(tx *Tx) error {
		if err := b.With(tx).Put("k1", thing{Name: "two"}); err == nil {
			t.Error("Put over a value that cannot be read succeeded")
		}
		return b.With(tx).Put("k2", thing{Name: "three"})
	})
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) || !strings.Contains(err.Error(), "k1") {
		t.Errorf("Update = %v, want the error of the write", err)
	}
	if _, err := b.Get("k2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get = %v, want ErrNotFound", err)
	}
}

// Data that JSON does not store is not indexed either.
func TestIndexUsesTheStoredValue(t *testing.T) {
	db := fresh(t)
	b := In(db, "things", Index("name", func(v thing) string {
		if v.Hook != nil {
			return "hooked"
		}
		return v.Name
	}))
	must(t, b.Put("k", thing{Name: "a\xffb", Hook: func() {}}))
	verify(t, b)
	must(t, b.Delete("k"))
	verify(t, b)
}

// An index that is declared later also has the older values.
func TestLaterIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dew.db")
	db := open(t, path)
	old := In[thing](db, "things")
	must(t, old.Put("k1", thing{Name: "one", Group: "g"}))
	must(t, old.Put("k2", thing{Name: "two", Group: "g"}))
	must(t, db.Close())

	b := things(open(t, path))
	if vs, err := b.By("group", "g"); err != nil || names(vs) != "one two" {
		t.Errorf("By before any write = %q, %v", names(vs), err)
	}
	if err := b.Put("k3", thing{Name: "one"}); !errors.Is(err, ErrTaken) {
		t.Errorf("Put = %v, want ErrTaken", err)
	}
	must(t, b.Delete("k1"))
	must(t, b.Put("k3", thing{Name: "one"}))
	verify(t, b)
}

func TestDeclaredTwice(t *testing.T) {
	db := fresh(t)
	things(db)
	things(db) // declaring the same again is allowed
	defer func() {
		if recover() == nil {
			t.Error("another declaration did not panic")
		}
	}()
	In(db, "things", Index("name", byName))
}

func TestUnknownIndex(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an index that was not declared did not panic")
		}
	}()
	_, _ = things(fresh(t)).By("colour", "red")
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dew.db")
	db, err := Open(path, Options{}) // waits for the disk
	must(t, err)
	must(t, things(db).Put("k1", thing{Name: "one", Group: "g"}))
	must(t, db.Close())
	must(t, db.Close())
	if err := things(db).Put("k1", thing{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Put after Close = %v, want ErrClosed", err)
	}
	if _, err := things(db).All(); !errors.Is(err, ErrClosed) {
		t.Errorf("All after Close = %v, want ErrClosed", err)
	}
	b := things(open(t, path))
	if vs, err := b.By("group", "g"); err != nil || names(vs) != "one" {
		t.Errorf("By after opening again = %q, %v", names(vs), err)
	}
	verify(t, b)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v, want 0600", fi.Mode(), err)
	}
}

// killedAt is the environment variable that makes the test binary the process to kill.
const killedAt = "STORE_TEST_KILLED_AT"

// After a process is killed during writes, the store can be opened again. It has all
// committed values and matching indexes.
func TestKill(t *testing.T) {
	if path := os.Getenv(killedAt); path != "" {
		writeUntilKilled(t, path)
	}
	path := filepath.Join(t.TempDir(), "dew.db")
	last := -1
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), killedAt+"="+path)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range 15 {
			if !lines.Scan() {
				t.Fatalf("the writer ended: %v", cmd.Wait())
			}
		}
		must(t, cmd.Process.Kill())
		said := lines.Text()
		for lines.Scan() {
			said = lines.Text()
		}
		_ = cmd.Wait() // killed

		db := open(t, path)
		b := things(db)
		n, err := strconv.Atoi(said)
		must(t, err)
		if v, err := b.Get("last"); err != nil || v.N < n || v.N <= last {
			t.Errorf("last = %d, %v, want at least %d", v.N, err, n)
		}
		verify(t, b)
		must(t, db.Close())
		last = n
	}
}

// writeUntilKilled prints every number that is committed. Writes to stdout are not
// buffered, so the test can read everything that was printed before the kill.
func writeUntilKilled(t *testing.T, path string) {
	db, err := Open(path, Options{LockTimeout: 5 * time.Second})
	must(t, err)
	b := things(db)
	first, err := b.Get("last")
	if err != nil && !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	for n := first.N + 1; ; n++ {
		must(t, db.Update(func(tx *Tx) error {
			for i := range 5 {
				must(t, b.With(tx).Put(fmt.Sprint("k", (n+i)%12), thing{Name: fmt.Sprint(n, i), Group: fmt.Sprint(n % 3)}))
			}
			return b.With(tx).Put("last", thing{N: n})
		}))
		if _, err := fmt.Fprintln(os.Stdout, n); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "dew.db")
		db := open(t, path)
		for _, patience := range []time.Duration{20 * time.Millisecond, time.Minute} {
			began := time.Now()
			_, err := Open(path, Options{LockTimeout: patience})
			if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "stop that process") {
				t.Errorf("second Open = %v, want ErrInUse with the remedy", err)
			}
			if d := time.Since(began); d > patience || d < patience-100*time.Millisecond {
				t.Errorf("it waited for %v, want %v", d, patience)
			}
		}
		must(t, db.Close())
		open(t, path)
	})
}

func TestFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dew.db")
	reopen := func(o Options) error {
		o.NoSync = true
		db, err := Open(path, o)
		if err != nil {
			return err
		}
		return db.Close()
	}
	must(t, reopen(Options{Format: 2}))
	must(t, reopen(Options{Format: 2}))
	if err := reopen(Options{}); !errors.Is(err, ErrNewerFormat) || !strings.Contains(err.Error(), "use the newer program") {
		t.Errorf("older program = %v, want ErrNewerFormat with the remedy", err)
	}
	if err := reopen(Options{Format: 3}); !errors.Is(err, ErrOlderFormat) {
		t.Errorf("newer program without an upgrade = %v, want ErrOlderFormat", err)
	}
	stop := errors.New("stop")
	upgrade := func(result error) func(*DB, *Tx, int) error {
		return func(db *DB, tx *Tx, from int) error {
			if from != 2 {
				t.Errorf("upgrade from %d, want 2", from)
			}
			must(t, things(db).With(tx).Put("k", thing{Name: "new"}))
			return result
		}
	}
	if err := reopen(Options{Format: 3, Upgrade: upgrade(stop)}); !errors.Is(err, stop) {
		t.Errorf("failed upgrade = %v, want %v", err, stop)
	}
	must(t, reopen(Options{Format: 2})) // it is still the old format
	must(t, reopen(Options{Format: 3, Upgrade: upgrade(nil)}))
	must(t, reopen(Options{Format: 3}))
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	must(t, os.WriteFile(text, []byte(strings.Repeat("not a store ", 1000)), 0o600))
	if _, err := Open(text, Options{}); err == nil || !strings.Contains(err.Error(), "move it to another folder or restore it from a backup") {
		t.Errorf("text = %v, want the remedy", err)
	}
	if _, err := Open(filepath.Join(dir, "no", "folder"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder = %v", err)
	}
	foreign := filepath.Join(dir, "foreign")
	bolt, err := bbolt.Open(foreign, 0o600, nil)
	must(t, err)
	must(t, bolt.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("x")); return err }))
	must(t, bolt.Close())
	if _, err := Open(foreign, Options{}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("a file of another program = %v", err)
	}
}

func TestListen(t *testing.T) {
	db := fresh(t)
	b, words := things(db), In[string](db, "words")
	var heard []string
	b.Listen(func(key string) { heard = append(heard, "thing "+key) })
	words.Listen(func(key string) { heard = append(heard, "word "+key) })
	words.Listen(func(key string) { heard = append(heard, "again "+key) })
	hears := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(heard, want); diff != "" {
			t.Errorf("%s (-heard +want):\n%s", what, diff)
		}
		heard = nil
	}
	must(t, b.Put("k1", thing{}))
	hears("put", "thing k1")
	must(t, b.Delete("k1"))
	hears("delete", "thing k1")
	must(t, b.Delete("k1"))
	hears("delete of nothing")
	must(t, b.Touch("k1"))
	hears("touch", "thing k1")
	must(t, db.Update(func(tx *Tx) error {
		must(t, b.With(tx).Put("k2", thing{}))
		must(t, words.With(tx).Put("w", ""))
		must(t, b.With(tx).Put("k2", thing{N: 1}))
		if heard != nil {
			t.Errorf("heard inside the transaction: %v", heard)
		}
		return nil
	}))
	hears("transaction", "thing k2", "word w", "again w")
	_ = db.Update(func(tx *Tx) error {
		must(t, b.With(tx).Put("k3", thing{}))
		return errors.New("stop")
	})
	hears("given up")
}

// A listener can write; its changes are reported after all earlier ones.
func TestListenerWrites(t *testing.T) {
	db := fresh(t)
	b := things(db)
	var heard []string
	b.Listen(func(key string) {
		heard = append(heard, key)
		if len(heard) == 1 {
			must(t, b.Put("k3", thing{}))
		}
		if _, err := b.All(); err != nil {
			t.Error(err)
		}
	})
	must(t, db.Update(func(tx *Tx) error {
		must(t, b.With(tx).Put("k1", thing{}))
		return b.With(tx).Put("k2", thing{})
	}))
	if diff := cmp.Diff(heard, []string{"k1", "k2", "k3"}); diff != "" {
		t.Errorf("heard (-got +want):\n%s", diff)
	}
}

// A panic in a listener does not prevent later calls.
func TestListenerPanics(t *testing.T) {
	b := things(fresh(t))
	var heard []string
	b.Listen(func(key string) {
		if key == "bad" {
			panic("bug")
		}
		heard = append(heard, key)
	})
	func() {
		defer func() { _ = recover() }()
		_ = b.Put("bad", thing{})
	}()
	must(t, b.Put("good", thing{}))
	if diff := cmp.Diff(heard, []string{"good"}); diff != "" {
		t.Errorf("heard (-got +want):\n%s", diff)
	}
}

// With many writers and readers, no count is lost, listeners get all commits in order,
// and indexes stay correct.
func TestConcurrency(t *testing.T) {
	db := fresh(t)
	b := things(db)
	must(t, b.Put("count", thing{Name: "count"}))
	var order, heard []string // order is only written inside transactions, which guards it
	b.Listen(func(key string) {
		if key != "count" {
			heard = append(heard, key) // one call at a time
		}
	})
	var wg sync.WaitGroup
	const writers, rounds = 8, 25
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				key := fmt.Sprintf("w%d-%d", w, i)
				err := db.Update(func(tx *Tx) error {
					b := b.With(tx)
					if _, err := b.Update("count", func(v *thing) error { v.N++; return nil }); err != nil {
						return err
					}
					if rand.N(4) == 0 {
						return errGivenUp
					}
					order = append(order, key)
					return b.Put(key, thing{Name: key, Group: fmt.Sprint(w)})
				})
				if err != nil && !errors.Is(err, errGivenUp) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range rounds {
				if _, err := b.By("group", fmt.Sprint(w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if v, _ := b.Get("count"); v.N != len(order) {
		t.Errorf("count = %d, want %d", v.N, len(order))
	}
	if diff := cmp.Diff(heard, order); diff != "" {
		t.Errorf("heard (-got +want):\n%s", diff)
	}
	verify(t, b)
}

var errGivenUp = errors.New("given up")

// Last returns the greatest key with a prefix and no other.
func TestLast(t *testing.T) {
	b := In[int](fresh(t), "words")
	for i, k := range []string{"a/1", "a/2", "b/1", "b\xff", "b\xff\xff", "b\xff\xff1"} {
		if err := b.Put(k, i); err != nil {
			t.Fatal(err)
		}
	}
	const none = -1
	for prefix, want := range map[string]int{"a/": 1, "a": 1, "b/": 2, "b\xff\xff": 5, "b": 5, "": 5, "c": none, "A": none, "a/3": none} {
		got, err := b.Last(prefix)
		if want == none && !errors.Is(err, ErrNotFound) {
			t.Errorf("Last(%q) = %d, %v, want ErrNotFound", prefix, got, err)
		}
		if want != none && (err != nil || got != want) {
			t.Errorf("Last(%q) = %d, %v, want %d", prefix, got, err, want)
		}
	}
}

// Keys returns the keys with a prefix in order, even inside a transaction.
func TestKeys(t *testing.T) {
	db := fresh(t)
	b := In[int](db, "words")
	if got, err := b.Keys(""); err != nil || len(got) != 0 {
		t.Errorf("Keys of what is not there = %v, %v, want none", got, err)
	}
	for i, k := range []string{"b/1", "a/2", "a/1", "c"} {
		if err := b.Put(k, i); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string][]string{"": {"a/1", "a/2", "b/1", "c"}, "a/": {"a/1", "a/2"}, "b/1": {"b/1"}, "d": nil} {
		if got, err := b.Keys(prefix); err != nil || !cmp.Equal(got, want) {
			t.Errorf("Keys(%q) = %v, %v, want %v", prefix, got, err, want)
		}
	}
	err := db.Update(func(tx *Tx) error {
		if err := b.With(tx).Delete("a/1"); err != nil {
			return err
		}
		got, err := b.With(tx).Keys("a/")
		if !cmp.Equal(got, []string{"a/2"}) {
			t.Errorf("Keys in the transaction = %v, want what it left", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRecode(t *testing.T) {
	db := fresh(t)
	things(db)
	for _, tt := range []struct {
		name, bucket, raw, want string
		fails                   bool
	}{
		{"a value", "things", `{"N":1,"Name":"a"}`, `{"Name":"a","Group":"","N":1}`, false},
		{"an unknown field", "things", `{"Name":"a","Size":1}`, "", true},
		{"an unknown bucket", "others", `{}`, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := db.Recode(tt.bucket, []byte(tt.raw))
			if string(got) != tt.want || (err != nil) != tt.fails {
				t.Errorf("Recode = %s, %v, want %s and fails = %t", got, err, tt.want, tt.fails)
			}
		})
	}
	if got := db.Declared(); !slices.Equal(got, []string{"things"}) {
		t.Errorf("Declared = %v, want things", got)
	}
}

// The version changes with every commit, and only then.
func TestVersion(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "dew.db"), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	b := In[int](db, "numbers")
	seen := map[int]bool{}
	for i := range 3 {
		if err := b.Put("a", i); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			v, err := db.Version()
			if err != nil {
				t.Fatal(err)
			}
			seen[v] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d versions after 3 commits: %v", len(seen), seen)
	}
}

// KeysBy returns keys in the order of the index, also of an index that was declared later.
func TestKeysBy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dew.db")
	db := open(t, path)
	old := In[thing](db, "things")
	for key, group := range map[string]string{"k1": "b 2", "k2": "b 1", "k3": "a\x00 1", "k4": "a\x00 0", "k5": "", "k6": "b"} {
		must(t, old.Put(key, thing{Name: key, Group: group}))
	}
	must(t, db.Close())
	db = open(t, path)
	b := things(db)
	check := func(when string, b Bucket[thing]) {
		t.Helper()
		for prefix, want := range map[string][]string{
			"b ": {"k2", "k1"}, "b": {"k6", "k2", "k1"}, "a\x00": {"k4", "k3"}, "a\x00 0": {"k4"}, "c": nil, "": {"k4", "k3", "k6", "k2", "k1"},
		} {
			if got, err := b.KeysBy("group", prefix); err != nil || !cmp.Equal(got, want) {
				t.Errorf("%s: KeysBy(%q) = %v, %v, want %v", when, prefix, got, err, want)
			}
		}
	}
	check("before the index is on disk", b)
	must(t, b.Put("k5", thing{Name: "k5"}))
	check("from disk", b)
	must(t, db.Update(func(tx *Tx) error {
		check("in a transaction", b.With(tx))
		return nil
	}))
}
