package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestJavaProcess(t *testing.T) {
	proc := t.TempDir()
	add := func(pid, name string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "comm"), []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	add("1", "dew-init")
	add("7", "javac")
	if pid, err := javaProcess(proc); err == nil {
		t.Errorf("found %d, want none", pid)
	}
	add("12", "java")
	if pid, err := javaProcess(proc); err != nil || pid != 12 {
		t.Errorf("found %d, %v, want 12", pid, err)
	}
}
