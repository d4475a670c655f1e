package images

import (
	"testing"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
)

// Two trees or two stacks never share a snapshot; two instances of the same tree do.
func TestImageKey(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, image := range []string{"", "a", "b", "ab"} {
		for _, id := range []string{"", "1", "2", "b\n1"} {
			s := runtime.Spec{Instance: runtime.NewInstanceID(), Image: image, Stack: stack.Stack{ID: id}}
			key := imageKey(s)
			if other, taken := seen[key]; taken {
				t.Errorf("image %q on stack %q has the key of %s", image, id, other)
			}
			seen[key] = image + " on " + id
			s.Instance = runtime.NewInstanceID()
			if again := imageKey(s); again != key {
				t.Errorf("another instance has key %s, want %s", again, key)
			}
			if id, ok := names.Instance(key); ok {
				t.Errorf("key %s would be swept as instance %s", key, id)
			}
		}
	}
	if a, b := stackKey(stack.Stack{ID: "1", Name: "x"}), stackKey(stack.Stack{ID: "2", Name: "x"}); a == b {
		t.Errorf("two stacks have key %s", a)
	}
}
