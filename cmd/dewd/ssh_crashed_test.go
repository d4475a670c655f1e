//go:build integration

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// A session can be opened in a crashed instance. It has the files and the environment,
// and no running processes. This works with dew and OpenSSH's clients, and while the
// app is stopped, but not after it is deleted.
func TestSSHCrashed(t *testing.T) {
	runParallel(t)
	s := newShop(t)
	if got := finish(t, s.dewCommand("ssh", "shop", "--crashed", "-c", "true")); got.code != 1 || !strings.Contains(got.err, "no files of a matching crash are kept") {
		t.Errorf("before a crash: %+v", got)
	}
	s.dew("ssh", "shop", "--process", "worker", "-c", "echo $CF_INSTANCE_GUID > left; head -c 100000 /dev/zero > core")
	s.dew("kill", "shop", "--process", "worker")
	var crashes v3.Crashes
	s.eventually("the files are kept", func() error {
		s.curl("/dew/v1/apps/"+s.guid+"/crashes", &crashes)
		if len(crashes.Crashes) != 1 || !crashes.Crashes[0].Kept {
			return fmt.Errorf("crashes: %+v", crashes)
		}
		return nil
	})
	id := crashes.Crashes[0].Instance
	if got := s.output("crashes", "shop"); !strings.Contains(got, "its files are kept. To see them: dew ssh --crash 1 shop") {
		t.Errorf("crashes: %s", got)
	}
	s.dew("stop", "shop")
	for range 2 { // the first session leaves nothing for the second
		c := s.dewCommand("ssh", "shop", "--crashed", "-c", `cat left; rm left; echo "$FROM_PROFILE"; pwd; echo oops >&2; exit 7`)
		got := finish(t, c)
		if want := id + "\nwith two  blanks\n/home/vcap/app\n"; got.out != want || got.err != "oops\n" || got.code != 7 {
			t.Errorf("dew ssh --crashed: %+v, want %q, oops and 7", got, want)
		}
	}
	s.dew("cp", "--crash", "1", "shop:core", s.dir)
	if info, err := os.Stat(filepath.Join(s.dir, "core")); err != nil || info.Size() != 100000 {
		t.Errorf("the copied file: %v, %v", info, err)
	}
	args := append(s.openSSHArgs(s.worker, 0), "127.0.0.1", "cat left")
	for i, a := range args {
		if strings.HasPrefix(a, "User=") {
			args[i] = "User=cf:" + s.worker + "/crashed-" + id
		}
	}
	if got := finish(t, s.openSSH("ssh", args...)); got.code != 0 || got.out != id+"\n" {
		t.Errorf("OpenSSH's client: %+v", got)
	}
	kept := func() []string {
		files, err := filepath.Glob(filepath.Join(s.root, "crashed", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if len(kept()) != 1 {
		t.Errorf("kept: %v, want one", kept())
	}
	s.dew("delete", "-f", "shop")
	s.eventually("nothing is kept", func() error {
		if files := kept(); len(files) > 0 {
			return fmt.Errorf("kept: %v", files)
		}
		return nil
	})
}
