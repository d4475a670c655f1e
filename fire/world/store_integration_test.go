//go:build integration

package world

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

type number struct {
	Number int
	Filler string
}

func numbers(db *store.DB) store.Bucket[number] { return store.In[number](db, "numbers") }

// The disk fails during some commits, and dewd can be killed before each operation on the
// file. The file is never damaged, and it has every acknowledged value.
func TestStoreOnFailingDisk(t *testing.T) {
	testkit.NeedRoot(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	below, root := filepath.Join(dir, "below"), filepath.Join(dir, "root")
	for _, d := range []string{below, root} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	v := testkit.Must(mountFaults(root, below))(t)
	t.Cleanup(func() {
		if err := v.unmount(); err != nil {
			t.Error(err)
		}
	})
	put := writer(t, filepath.Join(root, "dew.db"))
	stored, possible := map[string]int{}, map[string][]int{}
	if !put("first", 0, 0) {
		t.Fatal("the store does not work")
	}
	refused := 0
	for round := 1; round <= 150 && !t.Failed(); round++ {
		operation, from, count := 0, r.IntN(8), r.IntN(4)
		key := fmt.Sprint(r.IntN(20))
		possible[key] = append(possible[key], round)
		v.set(syscall.EIO, func(string) bool {
			operation++
			checkCopy(t, filepath.Join(below, "dew.db"), stored, possible)
			return operation > from && operation <= from+count
		})
		ok := put(key, round, r.IntN(3000))
		v.set(0, nil)
		if ok {
			stored[key], possible[key] = round, nil
		} else {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no commit failed")
	}
}

// writer starts a process with a store. This process cannot have it, because a page fault
// in the file would wait for the FUSE server. put reports whether the store has accepted
// a value.
func writer(t *testing.T, path string) (put func(key string, n, size int) bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestWriter$")
	cmd.Env, cmd.Stderr = append(os.Environ(), writerVariable+"="+path), os.Stderr
	in, out := testkit.Must(cmd.StdinPipe())(t), bufio.NewReader(testkit.Must(cmd.StdoutPipe())(t))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the writer failed: %v", err)
		}
	})
	return func(key string, n, size int) (ok bool) {
		t.Helper()
		fmt.Fprintln(in, key, n, size)
		if _, err := fmt.Fscanln(out, &ok); err != nil {
			t.Fatalf("the writer does not answer: %v", err)
		}
		return ok
	}
}

// writerVariable is the environment variable with the path of the writer's store.
const writerVariable = "DEW_TEST_STORE"

// TestWriter is the process of writer, and no test of its own.
func TestWriter(t *testing.T) {
	path := os.Getenv(writerVariable)
	if path == "" {
		return
	}
	db := testkit.Must(store.Open(path, store.Options{}))(t)
	defer db.Close()
	for {
		var key string
		var n, size int
		if _, err := fmt.Scanln(&key, &n, &size); err != nil {
			return
		}
		ok := numbers(db).Put(key, number{n, strings.Repeat("x", size)}) == nil
		if got, err := numbers(db).Get(key); ok && (err != nil || got.Number != n) {
			t.Fatalf("Get(%s) = %d, %v, want %d", key, got.Number, err, n)
		}
		fmt.Println(ok)
	}
}

// checkCopy checks a copy of a store: what the next dewd would find.
func checkCopy(t *testing.T, file string, stored map[string]int, possible map[string][]int) {
	if t.Failed() {
		return
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := copyFile(file, copied); err != nil {
		t.Error(err)
		return
	}
	if err := checkFile(copied); err != nil {
		t.Errorf("the file is damaged: %v", err)
		return
	}
	db, err := store.Open(copied, store.Options{NoSync: true})
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	for key, want := range stored {
		got, err := numbers(db).Get(key)
		if err != nil || got.Number != want && !slices.Contains(possible[key], got.Number) {
			t.Errorf("key %s has value %d (%v), want %d or one of %v", key, got.Number, err, want, possible[key])
		}
	}
}

func checkFile(path string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("bbolt panics: %v", v)
		}
	}()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	})
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}
