package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMergeEnv(t *testing.T) {
	for _, tt := range []struct {
		name             string
		base, over, want []string
	}{
		{"nothing", nil, nil, nil},
		{"added", []string{"A=1"}, []string{"B=2"}, []string{"A=1", "B=2"}},
		{"over wins in place", []string{"A=1", "B=2"}, []string{"A=3"}, []string{"A=3", "B=2"}},
		{"the last wins", nil, []string{"A=1", "A=2"}, []string{"A=2"}},
		{"empty value", []string{"A=1"}, []string{"A="}, []string{"A="}},
		{"value with =", []string{"A=x=y"}, nil, []string{"A=x=y"}},
		{"no variables", []string{"A", "=x", ""}, []string{"B=1"}, []string{"B=1"}},
	} {
		if diff := cmp.Diff(MergeEnv(tt.base, tt.over), tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", tt.name, diff)
		}
	}
}
