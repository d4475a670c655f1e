package builtin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
)

// Volumes are the volumes of servers that run in a cluster, and the addresses at which
// clients reach the servers.
type Volumes interface {
	// Put creates a volume and its address, or makes the volume larger. It can be repeated.
	Put(ctx context.Context, v runtime.Volume) (netip.Addr, error)
	// Remove removes both. It is not an error if there are none.
	Remove(ctx context.Context, server string) error
}

// replaceFile tells the script of a server in a cluster to replace its data before it
// starts. dewd cannot do that, because only the server has the volume.
const replaceFile = "replace"

// replaceUndo is the source of the data that undoes an unfinished restore.
const replaceUndo = "before"

// inCluster reports whether the data is in volumes and not in folders of this machine.
func (b *servers) inCluster() bool { return b.c.Volumes != nil }

// host returns the address at which clients reach the server.
func (r record) host() netip.Addr {
	if r.Service.IsValid() {
		return r.Service
	}
	return r.Address
}

// volumeBytes returns the size of a volume. Half of it is for snapshots, and for the
// previous data during a restore.
func volumeBytes(z size) int64 { return 2 * int64(z.diskMB) << 20 }

// putVolume creates the volume of a server, or makes it larger. A volume never becomes
// smaller.
func (b *servers) putVolume(ctx context.Context, rec record, s shape) error {
	e, ok := engineOf(rec.Engine)
	if !b.inCluster() || !ok {
		return nil
	}
	bytes := max(rec.Volume, volumeBytes(e.size(s)))
	addr, err := b.c.Volumes.Put(ctx, runtime.Volume{Server: rec.GUID, Bytes: bytes, Port: e.port, Address: rec.Service})
	if err != nil {
		return err
	}
	if addr == rec.Service && bytes == rec.Volume {
		return nil
	}
	_, err = b.change(rec.GUID, func(r *record) { r.Service, r.Volume = addr, bytes })
	return err
}

// keepVolumes creates the addresses of servers again that someone deleted while dewd did
// not run.
func (b *servers) keepVolumes(ctx context.Context, rec record) {
	if !b.inCluster() || !rec.usable() {
		return
	}
	b.running.Go(func() {
		for n := 1; ; n++ {
			err := b.keepVolume(ctx, rec.GUID)
			if ctx.Err() != nil {
				return // the next daemon tries again
			}
			b.recordAttempt(rec.GUID, err)
			if err == nil {
				return
			}
			b.c.Logger.Error("cannot check the volume of a database; dewd tries again", "service_instance", rec.GUID, "err", err)
			if !wait(ctx, min(time.Duration(n)*time.Second, time.Minute)) {
				return
			}
		}
	})
}

// keepVolume does that for one server, unless it was deleted.
func (b *servers) keepVolume(ctx context.Context, guid string) error {
	unlock, err := b.lock(ctx, guid)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := b.get(guid)
	if errors.Is(err, services.ErrNotFound) || err == nil && !rec.usable() {
		return nil
	}
	if err != nil {
		return err
	}
	return b.putVolume(ctx, rec, rec.Shape)
}

// removeVolume removes the volume of a server with all data.
func (b *servers) removeVolume(ctx context.Context, guid string) error {
	if !b.inCluster() {
		return nil
	}
	return b.c.Volumes.Remove(ctx, guid)
}

// volumeSize returns how many bytes the data in a volume has, and how many are free.
func (b *servers) volumeSize(ctx context.Context, guid string) (used, free int64, err error) {
	out, err := b.session(ctx, guid, "", "size")
	if err != nil {
		return 0, 0, fmt.Errorf("cannot measure the volume: %w", err)
	}
	words := strings.Fields(out)
	if len(words) != 2 {
		return 0, 0, fmt.Errorf("cannot measure the volume: the server returned %q", oneLine(out))
	}
	if used, err = strconv.ParseInt(words[0], 10, 64); err == nil {
		free, err = strconv.ParseInt(words[1], 10, 64)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("cannot measure the volume: %w", err)
	}
	return used, free, nil
}

// sizeToCopy returns the size of the data of a running server. It returns an error if
// there is no space for a copy.
func (b *snapshots) sizeToCopy(ctx context.Context, rec record) (int64, error) {
	if b.inCluster() {
		used, free, err := b.volumeSize(ctx, rec.GUID)
		if err == nil {
			err = checkVolume(free, used)
		}
		return used, err
	}
	bytes, err := treeSize(b.data(rec.GUID))
	if err != nil {
		return 0, err
	}
	if err := b.checkDisk(bytes); err != nil {
		return 0, refusal(http.StatusInsufficientStorage, "%v", err)
	}
	return bytes, nil
}

// checkVolume checks that a volume has space for a number of additional bytes.
func checkVolume(free, bytes int64) error {
	if free >= bytes {
		return nil
	}
	return refusal(http.StatusInsufficientStorage, "%d MB are free on the volume of the service instance, but %d MB are needed; delete a snapshot, or choose a larger plan",
		free>>20, (bytes+1<<20-1)>>20)
}

// keepCopies removes all copies in a volume that are not snapshots of the record.
func (b *servers) keepCopies(ctx context.Context, rec record) error {
	words := []string{"keep"}
	for _, s := range rec.Snapshots {
		words = append(words, s.ID)
	}
	if _, err := b.session(ctx, rec.GUID, "", words...); err != nil {
		return fmt.Errorf("cannot remove a snapshot: %w", err)
	}
	return nil
}
