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
	"github.com/dewrun/dew/runtime/userns"
)

// usersOf returns the users of a new container. Builds and services have those of the
// machine, and so has an image whose user is outside of the range.
func (e *Engine) usersOf(s runtime.Spec) userns.Range {
	if !e.cfg.OwnUsers || e.cfg.Snapshotter != "overlayfs" || s.Kind != runtime.KindInstance && s.Kind != runtime.KindTask || !s.Address.IsValid() {
		return userns.Range{}
	}
	for _, p := range s.Processes {
		if u := p.User; u != nil && (u.UID >= userns.Size || u.GID >= userns.Size) {
			return userns.Range{}
		}
	}
	return userns.For(s.Address)
}

// rootMount is the name of the mount of the root file system while the container is
// created.
func (c *container) rootMount() string { return c.id + "-root" }

// usersPath is the path of the user namespace while the container is created.
func (c *container) usersPath() string { return filepath.Join(c.dir, "users") }

// rootMounts returns the mounts of the root file system, for containerd.
func (c *container) rootMounts(mounts []mount.Mount) []mount.Mount {
	if !c.users.Enabled() {
		return mounts
	}
	return []mount.Mount{{Type: "bind", Source: c.e.mounts.At(c.rootMount()), Options: []string{"rbind", "rw"}}}
}

// withMounts runs fn while containerd can find the root file system and the user
// namespace of a container with its own users.
func (c *container) withMounts(mounts []mount.Mount, fn func() error) error {
	if !c.users.Enabled() {
		return fn()
	}
	if len(mounts) != 1 {
		return errors.New("a user namespace needs one mount of the snapshotter overlayfs")
	}
	layers, ok := userns.ParseOverlay(mounts[0].Options)
	if !ok {
		return fmt.Errorf("cannot find the layers of the container in the mount options %v", mounts[0].Options)
	}
	namespace, err := userns.Of(c.e.net.Path(c.spec.Instance))
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), namespace.Fd()), c.usersPath()); err != nil {
		return fmt.Errorf("cannot show containerd a user namespace: %w", err)
	}
	defer os.Remove(c.usersPath()) //nolint:errcheck // it is removed with its folder
	return c.e.mounts.Hold(c.rootMount(), func() error {
		if err := c.users.Mount(layers, namespace, c.e.mounts.At(c.rootMount())); err != nil {
			return err
		}
		return fn()
	})
}

// taskOptions returns the options of the task. The shim gives its pipes to root of the
// container, which then gives them to the user of the process.
func (c *container) taskOptions() (*anypb.Any, error) {
	if !c.users.Enabled() {
		return nil, nil
	}
	any, err := typeurl.MarshalAnyToProto(&runc.Options{IoUid: c.users.First, IoGid: c.users.First})
	if err != nil {
		return nil, fmt.Errorf("cannot encode the options of the task: %w", err)
	}
	return any, nil
}
