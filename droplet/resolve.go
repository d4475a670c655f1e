package droplet

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

// errNotDir is what the system says of a path below a file.
var errNotDir error = syscall.ENOTDIR

// maxLinks is the kernel's own limit.
const maxLinks = 40

// resolve follows the symbolic links of p as if root were the root directory, and
// returns the path of what is there, without root.
func resolve(root, p string) (string, error) {
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
		if links++; links > maxLinks {
			return "", fmt.Errorf("cannot follow %s: %w", p, fs.ErrNotExist)
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

// glob returns the paths of root that match pattern, whose folder has no wildcards.
func glob(root, pattern string) ([]string, error) {
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
