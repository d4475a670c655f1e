package droplet

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

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
)

// staticProgram serves the files of apps that have no program.
const staticProgram = "dew-static"

// programs are those that built-in buildpacks copy into images. They stay on disk,
// because they are too large to be in memory for the few apps that need them.
type programs struct {
	dir string // empty: no programs

	mu   sync.Mutex
	sums map[string]programSum // by name; guarded by mu
}

// programSum is the checksum of a program, valid as long as the file is the same.
type programSum struct {
	size int64
	at   time.Time
	sum  string
}

// add adds a program to bin of a buildpack whose scripts are a tar. If there is no such
// program, the scripts must report that.
func (p *programs) add(h chosen, scripts []byte, name string) (chosen, error) {
	sum, err := p.sum(name)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("cannot read %s: %w", name, err)
	}
	h.key += "+" + sum
	h.open = func() (io.ReadCloser, error) {
		f, err := os.Open(filepath.Join(p.dir, name))
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		r, w := io.Pipe()
		go func() {
			w.CloseWithError(errors.Join(appendProgram(w, scripts, name, f), f.Close()))
		}()
		return r, nil
	}
	return h, nil
}

// sum returns the sha256 of a program, which can be replaced while the daemon runs.
func (p *programs) sum(name string) (string, error) {
	if p.dir == "" {
		return "", fs.ErrNotExist
	}
	f, err := os.Open(filepath.Join(p.dir, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
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

// appendProgram writes a tar and appends a program.
func appendProgram(to io.Writer, before []byte, name string, f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, bytes.NewReader(before[:len(before)-archive.TarEnd])); err != nil {
		return err
	}
	w := tar.NewWriter(to)
	h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join("bin", name), Mode: 0o755, Size: fi.Size(), ModTime: pool.Time}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.Copy(w, f); err != nil {
		return err
	}
	return w.Close()
}
