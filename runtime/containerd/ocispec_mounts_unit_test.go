package containerd_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
)

// The mounts of a stack are found among those of a container.
func TestStackMounts(t *testing.T) {
	want := []stack.Mount{
		{Path: "/usr", Type: "bind", Source: "/usr", Options: []string{"rbind", "ro"}},
		{Path: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid"}},
	}
	b := ocispec.Base{Init: "/host/init", SFTP: "/host/sftp"}
	spec := someSpec()
	spec.Stack.Mounts = want
	oci := b.Container(spec, somePaths)
	if diff := cmp.Diff(ocispec.StackMounts(oci.Mounts), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if got := ocispec.StackMounts([]specs.Mount{{Destination: "/proc"}}); got != nil {
		t.Errorf("the system's own = %v, want none", got)
	}
}

// Without a path the container gets its own network namespace.
func TestContainerWithoutNetwork(t *testing.T) {
	oci := ocispec.Base{}.Container(runtime.Spec{}, ocispec.Paths{})
	for _, ns := range oci.Linux.Namespaces {
		if ns.Type == specs.NetworkNamespace && ns.Path == "" {
			return
		}
	}
	t.Errorf("namespaces = %+v, want a network namespace of its own", oci.Linux.Namespaces)
}
