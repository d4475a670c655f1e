package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	runc "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/scratch"
	"github.com/dewrun/dew/runtime/userns"
)

// containerUsers are the users of a new container. An adopted container does not need
// them.
type containerUsers struct {
	userns.Range
	mounts  *scratch.Mounts
	root    string // name of the mount of the root file system while the container is created
	path    string // path of the user namespace while the container is created
	network string // path of the network namespace
}

// usersOf returns the users of a new container. Builds, services, and sessions in the files
// of a crash have those of the machine, and so has an image whose user is outside of the
// range.
func (e *Engine) usersOf(s runtime.Spec) containerUsers {
	u := containerUsers{
		mounts: e.mounts, root: names.Container(s.Instance) + "-root", path: filepath.Join(e.instanceDir(s.Instance), "users"), network: e.net.Path(s.Instance),
	}
	if !e.cfg.OwnUsers || e.cfg.Snapshotter != "overlayfs" || s.Kind != runtime.KindInstance && s.Kind != runtime.KindTask || s.Address.Addr().IsLoopback() {
		return u
	}
	for _, p := range s.Processes {
		if p.User != nil && (p.User.UID >= userns.Size || p.User.GID >= userns.Size) {
			return u
		}
	}
	u.Range = userns.For(s.Address)
	return u
}

// rootMounts returns the mounts of the root file system, for containerd.
func (u containerUsers) rootMounts(mounts []mount.Mount) []mount.Mount {
	if !u.Enabled() {
		return mounts
	}
	return []mount.Mount{{Type: "bind", Source: u.mounts.At(u.root), Options: []string{"rbind", "rw"}}}
}

// with runs fn while containerd can find the root file system and the user namespace of
// a container with its own users.
func (u containerUsers) with(mounts []mount.Mount, fn func() error) error {
	if !u.Enabled() {
		return fn()
	}
	if len(mounts) != 1 {
		return errors.New("a user namespace needs one mount of the snapshotter overlayfs")
	}
	layers, ok := userns.ParseOverlay(mounts[0].Options)
	if !ok {
		return fmt.Errorf("cannot find the layers of the container in the mount options %v", mounts[0].Options)
	}
	namespace, err := userns.Of(u.network)
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), namespace.Fd()), u.path); err != nil {
		return fmt.Errorf("cannot show containerd a user namespace: %w", err)
	}
	defer os.Remove(u.path) //nolint:errcheck // it is removed with its folder
	return u.mounts.Hold(u.root, func() error {
		if err := u.Mount(layers, namespace, u.mounts.At(u.root)); err != nil {
			return err
		}
		return fn()
	})
}

// taskOptions returns the options of the task. The shim gives its pipes to root of the
// container, which then gives them to the user of the process.
func (u containerUsers) taskOptions() (*anypb.Any, error) {
	if !u.Enabled() {
		return nil, nil
	}
	options, err := typeurl.MarshalAnyToProto(&runc.Options{IoUid: u.First, IoGid: u.First})
	if err != nil {
		return nil, fmt.Errorf("cannot encode the options of the task: %w", err)
	}
	return options, nil
}
