package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNotDir is the system's error for a path below a file.
var ErrNotDir error = syscall.ENOTDIR

// MaxLinks is the kernel's limit of symbolic links in a path.
const MaxLinks = 40

// Resolve follows the symbolic links of p as if root were the root directory. It
// returns the path of the target without root.
func Resolve(root, p string) (string, error) {
	todo := strings.Split(strings.Trim(path.Clean("/"+p), "/"), "/")
	done := "/"
	for links := 0; len(todo) > 0; {
		next := path.Join(done, todo[0])
		todo = todo[1:]
		fi, err := os.Lstat(filepath.Join(root, next))
		if err != nil {
			return "", err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > MaxLinks {
			return "", fmt.Errorf("cannot resolve the symbolic links of %s: %w", p, fs.ErrNotExist)
		}
		target, err := os.Readlink(filepath.Join(root, next))
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}

// Glob returns the paths of root that match pattern, whose folder has no wildcards.
func Glob(root, pattern string) ([]string, error) {
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}, nil
	}
	entries, err := os.ReadDir(filepath.Join(root, path.Dir(pattern)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		ok, err := path.Match(path.Base(pattern), e.Name())
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, path.Join(path.Dir(pattern), e.Name()))
		}
	}
	return found, nil
}
