package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultReserve is the free space that images leave on the disk of the machine.
const DefaultReserve = 64 << 20

// Config is the configuration of Limits.
type Config struct {
	Dir     string // folder of the images (empty: no limits)
	Off     bool   // new layers get no limit; those of an earlier daemon keep theirs
	Reserve int64  // free bytes that images leave on the disk of Dir (0: DefaultReserve)
	Logger  *slog.Logger

	// Attach connects an image to a block device that the kernel frees after its last
	// use. Nil means a loop device; only tests use another function.
	Attach func(image *os.File) (device *os.File, err error)
	// Free returns the free bytes of the disk of Dir. Nil means to ask the kernel; only
	// tests use another function.
	Free func() (int64, error)
}

// Limits are the limits of the layers of one daemon. They are safe for concurrent use.
// Without a folder there are none, and every method does nothing.
type Limits struct {
	cfg       Config
	log       *slog.Logger
	templates sync.Mutex // held while a template is created

	mu     sync.Mutex // guards the fields below
	layers map[string]*layer
	scarce bool // the disk of the machine is too small for all images
}

// layer is one layer with a limit. Its fields after mu are guarded by mu, which is held
// while the layer is mounted or unmounted.
type layer struct {
	record
	image, file string // paths of the image and of the record

	mu       sync.Mutex
	mounted  bool
	sessions int // users of the files of a crashed instance
	reserved int64
	used     int64     // bytes at the last check
	nearly   bool      // it was nearly full at the last check
	noticed  time.Time // the last notice
}

// record is what the next daemon needs to know about a layer.
type record struct {
	Layer string `json:"layer"` // folder that the file system is mounted on
	Bytes int64  `json:"bytes"` // the limit
}

const (
	recordSuffix = ".json"
	imageSuffix  = ".img"
)

// Open finds the layers that an earlier daemon limited.
func Open(cfg Config) (*Limits, error) {
	l := &Limits{cfg: cfg, log: cfg.Logger, layers: map[string]*layer{}}
	if l.cfg.Reserve == 0 {
		l.cfg.Reserve = DefaultReserve
	}
	if l.cfg.Attach == nil {
		l.cfg.Attach = attachLoop
	}
	if l.cfg.Free == nil {
		l.cfg.Free = func() (int64, error) { return free(cfg.Dir) }
	}
	if cfg.Dir == "" {
		return l, nil
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder of disk images: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(cfg.Dir, "*"+recordSuffix))
	if err != nil {
		return nil, fmt.Errorf("cannot list disk images: %w", err)
	}
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), recordSuffix)
		y := l.newLayer(id, record{})
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &y.record)
		}
		if err != nil || y.Layer == "" {
			// dewd was killed while it wrote the record: nothing is mounted yet.
			l.log.Warn("cannot read the record of a disk image", "file", file, "err", err)
			y.record = record{}
		}
		y.mounted = isMount(y.Layer) && y.holds()
		l.layers[id] = y
	}
	return l, nil
}

func (l *Limits) newLayer(id string, r record) *layer {
	return &layer{record: r, image: filepath.Join(l.cfg.Dir, id+imageSuffix), file: filepath.Join(l.cfg.Dir, id+recordSuffix)}
}

// Enabled reports whether new layers get a limit.
func (l *Limits) Enabled() bool { return l.cfg.Dir != "" && !l.cfg.Off }

// Limit limits the size of everything in a folder, which contains only empty folders.
// It mounts a file system with the same folders on it. After an error the folder is
// unchanged and has no limit.
func (l *Limits) Limit(id, folder string, bytes int64) error {
	y := l.newLayer(id, record{Layer: folder, Bytes: bytes})
	b, err := json.Marshal(y.record)
	if err != nil {
		return fmt.Errorf("cannot encode the record of a disk image: %w", err)
	}
	// The record comes first: a later daemon then finds everything else.
	//nolint:forbidigo // Open removes an unfinished record
	if err := os.WriteFile(y.file, b, 0o600); err != nil {
		return fmt.Errorf("cannot store the record of a disk image: %w", err)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	l.mu.Lock()
	l.layers[id] = y
	l.mu.Unlock()
	if err := l.fill(y); err != nil {
		return errors.Join(err, l.removeLocked(id, y))
	}
	return nil
}

// fill creates the file system of a layer and mounts it.
func (l *Limits) fill(y *layer) error {
	folders, err := describeFolders(y.Layer)
	if err != nil {
		return err
	}
	if err := l.createImage(y.image, y.Bytes); err != nil {
		return err
	}
	if err := l.mount(y, 0); err != nil {
		return err
	}
	// It belongs to fsck, which never runs here.
	if err := os.Remove(filepath.Join(y.Layer, "lost+found")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot prepare the file system of a layer: %w", err)
	}
	for _, f := range folders {
		if err := f.create(y.Layer); err != nil {
			return fmt.Errorf("cannot prepare the file system of a layer: %w", err)
		}
	}
	l.reserve(y, l.share(0))
	return nil
}

// mount mounts the image of a layer. The caller holds y.mu.
func (l *Limits) mount(y *layer, flags uintptr) error {
	image, err := os.OpenFile(y.image, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot open the disk image: %w", err)
	}
	defer image.Close()
	device, err := l.cfg.Attach(image)
	if err != nil {
		return err
	}
	defer device.Close() // from now on the mount uses it
	// The files do not outlive the machine's next start, so nothing waits for the disk.
	const options = "nobarrier,discard,noinit_itable,errors=remount-ro"
	if err := unix.Mount(device.Name(), y.Layer, "ext4", flags|unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOATIME, options); err != nil {
		return fmt.Errorf("cannot mount an ext4 image: %w", err)
	}
	y.mounted, y.reserved = true, 0
	return nil
}

// unmount unmounts the file system of a layer. The caller holds y.mu.
func (y *layer) unmount() error {
	if !y.mounted {
		return nil
	}
	if !y.holds() {
		y.mounted = false // another program unmounted it
		return nil
	}
	err := unix.Unmount(y.Layer, 0)
	if errors.Is(err, unix.EBUSY) { // the kernel completes it when the last user is gone
		err = unix.Unmount(y.Layer, unix.MNT_DETACH)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted any more
		return fmt.Errorf("cannot unmount %s: %w", y.Layer, err)
	}
	y.mounted = false
	return nil
}

// of returns a layer, or nil if it has no limit.
func (l *Limits) of(id string) *layer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.layers[id]
}

// all returns the layers by id.
func (l *Limits) all() map[string]*layer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.layers)
}

// Remove removes a layer and its files. Nothing uses them any more.
func (l *Limits) Remove(id string) error {
	y := l.of(id)
	if y == nil {
		return nil
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	return l.removeLocked(id, y)
}

// removeLocked is Remove for a caller that holds y.mu.
func (l *Limits) removeLocked(id string, y *layer) error {
	y.discard()
	if err := y.unmount(); err != nil {
		return err
	}
	// The record is last: without it no one would try again.
	for _, path := range []string{y.image, y.file} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove a disk image: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.layers, id)
	return nil
}

// discard makes the kernel forget data that is not written yet. Otherwise an unmount
// would write it to a file that is deleted next. On failure that is what happens.
func (y *layer) discard() {
	if !y.mounted || !y.holds() {
		return
	}
	f, err := os.Open(y.Layer)
	if err != nil {
		return
	}
	defer f.Close()
	const shutdown, withoutFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	_ = unix.IoctlSetPointerInt(int(f.Fd()), shutdown, withoutFlush)
}

// Unmount unmounts a layer and keeps its files, for Attach.
func (l *Limits) Unmount(id string) error {
	y := l.of(id)
	if y == nil {
		return nil
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.sessions > 0 {
		return nil
	}
	return y.unmount()
}

// Attach makes the files of an unmounted layer readable until Detach. It can be called
// several times.
func (l *Limits) Attach(id string) error {
	y := l.of(id)
	if y == nil {
		return nil
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.mounted {
		if err := l.mount(y, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	y.sessions++
	return nil
}

// Detach ends one Attach. The last one unmounts the files.
func (l *Limits) Detach(id string) error {
	y := l.of(id)
	if y == nil {
		return nil
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.sessions = max(y.sessions-1, 0); y.sessions > 0 {
		return nil
	}
	return y.unmount()
}

// Has reports whether the layer has a limit.
func (l *Limits) Has(id string) bool { return l.of(id) != nil }

// Sweep removes the layers that no instance has, unmounts those of crashed instances,
// and deletes the templates, which are created again when they are needed.
func (l *Limits) Sweep(running, crashed func(id string) bool) error {
	var errs error
	for id := range l.all() {
		switch {
		case running(id):
		case crashed(id):
			errs = errors.Join(errs, l.Unmount(id))
		default:
			l.log.Info("swept disk image", "instance", id)
			errs = errors.Join(errs, l.Remove(id))
		}
	}
	return errors.Join(errs, l.sweepFiles())
}

// sweepFiles deletes the files in the folder that belong to no layer.
func (l *Limits) sweepFiles() error {
	if l.cfg.Dir == "" {
		return nil
	}
	l.templates.Lock()
	defer l.templates.Unlock()
	entries, err := os.ReadDir(l.cfg.Dir)
	if err != nil {
		return fmt.Errorf("cannot list disk images: %w", err)
	}
	known := slices.Collect(maps.Keys(l.all()))
	var errs error
	for _, d := range entries {
		id := strings.TrimSuffix(strings.TrimSuffix(d.Name(), recordSuffix), imageSuffix)
		if !slices.Contains(known, id) {
			errs = errors.Join(errs, os.Remove(filepath.Join(l.cfg.Dir, d.Name())))
		}
	}
	return errs
}
