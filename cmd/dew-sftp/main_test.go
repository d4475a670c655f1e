package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/pkg/sftp"
)

// Relative paths start at the working directory, links keep their targets, and the
// server exits when the client disconnects.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- serve(there) }()
	c, err := sftp.NewClientPipe(here, here)
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Symlink("file", "link"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "link")); err != nil || string(b) != "hello" {
		t.Errorf("through the link: %q, %v", b, err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "link")); err != nil || target != "file" {
		t.Errorf("the link leads to %q, %v; want file", target, err)
	}
	if wd, err := c.Getwd(); err != nil || wd != dir {
		t.Errorf("working directory = %q, %v; want %q", wd, err, dir)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_ = here.Close()
	if err := <-served; err != nil {
		t.Errorf("serve = %v", err)
	}
}
