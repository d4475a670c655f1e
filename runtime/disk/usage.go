package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is how much of its limit a layer uses, in bytes.
type Usage struct {
	Limit int64
	Used  int64
	// NoInodes reports that no more files can be created, whatever their size.
	NoInodes bool
}

// Full reports whether a layer has used all of its limit. A file that does not fit
// leaves a little space.
func (u Usage) Full() bool {
	return u.Limit > 0 && (u.NoInodes || u.Used >= u.Limit-u.Limit/100)
}

// largeWrite is the most that the kernel adds to a file in one step. It refuses a step
// that does not fit as a whole, so an app with large writes never uses the last bytes.
const largeWrite = 2<<20 + 64<<10

// Nearly reports whether large writes fail already.
func (u Usage) Nearly() bool {
	return u.Limit > 0 && u.Limit-u.Used <= min(largeWrite, u.Limit/8)
}

// Of returns the usage of a layer. ok is false if the layer has no limit.
func (l *Limits) Of(id string) (u Usage, ok bool) {
	y := l.of(id)
	if y == nil {
		return Usage{}, false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	u, _, err := y.measure()
	return u, err == nil
}

// measure returns the usage of a layer, and the blocks that are free, including those
// that are reserved. The caller holds y.mu.
func (y *layer) measure() (u Usage, freeBlocks int64, err error) {
	if y.mounted && !y.holds() {
		y.mounted = false // another program unmounted it
	}
	if !y.mounted {
		return Usage{}, 0, fmt.Errorf("cannot measure %s: it is not mounted", y.Layer)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(y.Layer, &st); err != nil {
		return Usage{}, 0, fmt.Errorf("cannot measure %s: %w", y.Layer, err)
	}
	used := (int64(st.Blocks) - int64(st.Bfree) - baseBlocks) * st.Bsize
	u = Usage{Limit: y.Bytes, Used: min(max(used, 0), y.Bytes), NoInodes: st.Ffree == 0}
	return u, int64(st.Bfree), nil
}

// reserve makes the kernel keep blocks free, so that the layer can use no more than its
// limit, and no more than share further bytes. The caller holds y.mu.
func (l *Limits) reserve(y *layer, share int64) {
	u, freeBlocks, err := y.measure()
	if err != nil {
		l.log.Warn("cannot set a disk limit", "layer", y.Layer, "err", err)
		return
	}
	left := max(min(u.Limit-u.Used, share), 0) / block
	reserved := max(freeBlocks-left, 0)
	// While the machine has enough space, the value does not change with the usage.
	if reserved == y.reserved {
		return
	}
	if err := y.setReserved(reserved); err != nil {
		// The limit is then up to 2% larger than set, or the disk of the machine can fill up.
		l.log.Warn("cannot set the reserved space of a disk image", "layer", y.Layer, "err", err)
		return
	}
	y.reserved = reserved
}

func (y *layer) setReserved(blocks int64) error {
	device, err := y.device()
	if err != nil {
		return err
	}
	file := filepath.Join("/sys/fs/ext4", device, "reserved_clusters")
	return os.WriteFile(file, []byte(strconv.FormatInt(blocks, 10)), 0) //nolint:forbidigo // a setting of the kernel
}

// share returns how many bytes one layer can use at most until the next check, while
// others use the disk of the machine as well.
func (l *Limits) share(others int) int64 {
	left, err := l.cfg.Free()
	if err != nil {
		l.log.Warn("cannot read the free disk space", "err", err)
		return 1 << 62
	}
	return max(left-l.cfg.Reserve, 0) / int64(others+1)
}

// Notice says that a layer is full or nearly full, or that the disk of the machine is.
type Notice struct {
	ID string
	Usage
	// Free is the free space of the machine's disk, if that is why the layer cannot use
	// more. Otherwise it is -1.
	Free int64
}

// noticeEvery is the time between two notices about one layer.
const noticeEvery = time.Minute

// grown is by how much a layer grows between two checks if it is written to.
const grown = 1 << 20

// Check measures all layers and adapts them to the free space of the machine. It returns
// a notice for each layer that is full, at most once a minute, and once for a layer that
// is nearly full.
func (l *Limits) Check(now time.Time) []Notice {
	layers := l.all()
	if len(layers) == 0 {
		return nil
	}
	usages := map[string]Usage{}
	var growing int
	var growth int64
	for id, y := range layers {
		y.mu.Lock()
		if u, _, err := y.measure(); err == nil && y.sessions == 0 {
			usages[id] = u
			growth += u.Limit - u.Used
			if u.Used-y.used >= grown {
				growing++
			}
			y.used = u.Used
		}
		y.mu.Unlock()
	}
	if len(usages) == 0 {
		return nil
	}
	left, err := l.cfg.Free()
	if err != nil {
		l.log.Warn("cannot read the free disk space", "err", err)
		return nil
	}
	l.noteScarcity(growth, left)
	share := max(left-l.cfg.Reserve, 0) / int64(growing+1)
	var out []Notice
	for id, u := range usages {
		if n, ok := l.checkOne(layers[id], u, share, now); ok {
			n.ID = id
			if n.Free >= 0 {
				n.Free = left
			}
			out = append(out, n)
		}
	}
	return out
}

// checkOne adapts one layer, and returns its notice if it is full.
func (l *Limits) checkOne(y *layer, u Usage, share int64, now time.Time) (Notice, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.mounted {
		return Notice{}, false
	}
	l.reserve(y, share)
	n := Notice{Usage: u, Free: -1}
	known := y.nearly
	y.nearly = u.Nearly()
	switch {
	case u.Full():
	case share < u.Limit/100:
		n.Free = share
	case !u.Nearly() || known: // an app can run like this for long
		return Notice{}, false
	}
	if now.Sub(y.noticed) < noticeEvery {
		return Notice{}, false
	}
	y.noticed = now
	return n, true
}

// noteScarcity writes to dewd's log when the layers can grow beyond the free space.
func (l *Limits) noteScarcity(growth, left int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	scarce := growth > left-l.cfg.Reserve
	if scarce && !l.scarce {
		l.log.Warn("the disk of the machine has less free space than the disk limits of the instances allow them to use; near the end their writes fail with ENOSPC",
			"free", left, "can_grow_by", growth)
	}
	l.scarce = scarce
}
