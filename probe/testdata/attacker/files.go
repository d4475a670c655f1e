package main

import (
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func registerFiles() {
	attempts["read"] = func(q url.Values) string { return each(q["path"], readFile) }
	attempts["write"] = func(q url.Values) string { return each(q["path"], writeFile) }
	attempts["create"] = func(q url.Values) string {
		return each(q["path"], func(dir string) string {
			f, err := os.Create(filepath.Join(dir, "probe"))
			if err == nil {
				err = f.Close()
			}
			return result(err)
		})
	}
	attempts["list"] = func(q url.Values) string {
		return each(q["path"], func(dir string) string {
			_, err := os.ReadDir(dir)
			return result(err)
		})
	}
	attempts["symlink"] = func(q url.Values) string { return result(os.Symlink(q.Get("to"), q.Get("path"))) }
	attempts["mknod"] = func(url.Values) string {
		return all(result(unix.Mknod("/tmp/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0)))), result(unix.Mknod("/tmp/mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1)))))
	}
	attempts["devices"] = func(url.Values) string { return devices() }
	attempts["cgroups"] = func(url.Values) string { return cgroups() }
	attempts["setuidfiles"] = func(url.Values) string { return setuidFiles() }
}

// each joins the different results for several paths.
func each(paths []string, try func(path string) string) string {
	var out []string
	for _, p := range paths {
		out = append(out, try(p))
	}
	return all(out...)
}

// readFile reads the start of a file.
func readFile(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return result(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	n, err := f.Read(make([]byte, 64))
	if err != nil && err != io.EOF {
		return result(err)
	}
	if n == 0 {
		return "empty"
	}
	return "done"
}

// writeFile opens a file to write, and writes nothing.
func writeFile(path string) string {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		err = f.Close()
	}
	return result(err)
}

// devices lists the device files that are not the usual ones and can be opened.
func devices() string {
	usual := []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
	var out []string
	err := filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeDevice == 0 || strings.HasPrefix(path, "/dev/pts/") || slices.Contains(usual, d.Name()) {
			return nil //nolint:nilerr // what cannot be read cannot be opened
		}
		out = append(out, path)
		return nil
	})
	if err != nil {
		return err.Error()
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, " ")
}

// cgroups tries to write every file of the cgroups that can change a limit or start a
// program of the machine.
func cgroups() string {
	var out []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			out = append(out, result(err))
			return nil
		}
		switch d.Name() {
		case "release_agent", "notify_on_release", "cgroup.procs", "memory.max", "memory.limit_in_bytes", "pids.max", "devices.allow", "freezer.state":
			out = append(out, writeFile(path))
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	if len(out) == 0 {
		out = append(out, "no files")
	}
	out = append(out, result(os.Mkdir("/sys/fs/cgroup/probe", 0o755)))
	return all(out...)
}

// setuidFiles counts the programs in the folder of the app with a setuid or setgid bit.
func setuidFiles() string {
	n := 0
	err := filepath.WalkDir("/home/vcap/app", func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // nothing else can be counted
		}
		if info, err := d.Info(); err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			n++
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(n)
}
