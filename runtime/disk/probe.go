package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Probe tries to limit a layer below dir. The caller has a mount namespace of its own, so
// that nothing is left even if the program is killed.
func Probe(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	dir, err := os.MkdirTemp(dir, ".dew-doctor-")
	if err != nil {
		return fmt.Errorf("cannot create a folder: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a scratch folder
	layer := filepath.Join(dir, "layer")
	l, err := Open(Config{Dir: filepath.Join(dir, "disks"), Logger: slog.New(slog.DiscardHandler)})
	if err := errors.Join(err, os.Mkdir(layer, 0o700)); err != nil {
		return err
	}
	return errors.Join(l.Limit("probe", layer, 1<<20), l.Remove("probe"))
}

// Growth returns by how many bytes the images in the folder of a daemon can still grow,
// and how many bytes are free.
func Growth(dir string) (growth, left int64) {
	files, _ := filepath.Glob(filepath.Join(dir, "*"+recordSuffix)) // the pattern is valid
	for _, file := range files {
		var r record
		b, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(b, &r) != nil || !isMount(r.Layer) {
			continue // it is being created or removed, or its instance has crashed
		}
		if info, err := os.Stat(strings.TrimSuffix(file, recordSuffix) + imageSuffix); err == nil {
			growth += max(r.Bytes-allocated(info), 0)
		}
	}
	left, _ = free(dir) // no folder: no images either
	return growth, left
}

// PunchHole tests whether the file system of dir can free the space of a part of a file.
func PunchHole(dir string) error {
	f, err := os.CreateTemp(dir, ".dew-doctor-")
	if err != nil {
		return fmt.Errorf("cannot create a file: %w", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("cannot remove a file: %w", err)
	}
	if _, err := f.Write(make([]byte, 2*block)); err != nil {
		return fmt.Errorf("cannot write a file: %w", err)
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, block)
}
