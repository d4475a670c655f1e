package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"
)

// Programs are those of dew that built-in buildpacks use. They stay on disk, because
// they are too large to be in memory for the few apps that need them.
type Programs struct {
	Dir  string    // empty: no programs
	Time time.Time // of the files in archives

	mu   sync.Mutex
	sums map[string]programSum // by name; guarded by mu
}

// programSum is the checksum of a program, valid as long as the file is the same.
type programSum struct {
	size int64
	at   time.Time
	sum  string
}

// Sum returns the sha256 of a program, which can be replaced while the daemon runs. It
// is empty if there is no such program.
func (p *Programs) Sum(name string) (string, error) {
	if p.Dir == "" {
		return "", nil
	}
	f, err := os.Open(filepath.Join(p.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", name, err)
	}
	defer f.Close()
	sum, err := p.sum(name, f)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", name, err)
	}
	return sum, nil
}

func (p *Programs) sum(name string, f *os.File) (string, error) {
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.sums[name]; known.size == fi.Size() && known.at.Equal(fi.ModTime()) {
		return known.sum, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	if p.sums == nil {
		p.sums = map[string]programSum{}
	}
	sum := hex.EncodeToString(h.Sum(nil))
	p.sums[name] = programSum{size: fi.Size(), at: fi.ModTime(), sum: sum}
	return sum, nil
}

// Open returns a tar with a program in a folder, after the files of another tar, which
// can be empty.
func (p *Programs) Open(before []byte, folder, name string) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(p.Dir, name))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(errors.Join(p.write(w, before, path.Join(folder, name), f), f.Close()))
	}()
	return r, nil
}

// write writes a tar and appends a program.
func (p *Programs) write(to io.Writer, before []byte, name string, f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, bytes.NewReader(before[:max(0, len(before)-TarEnd)])); err != nil {
		return err
	}
	w := tar.NewWriter(to)
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: fi.Size(), ModTime: p.Time}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.Copy(w, f); err != nil {
		return err
	}
	return w.Close()
}
