package shell

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

func TestChooseCrash(t *testing.T) {
	crashes := []v3.Crash{
		{Instance: "a", Type: "web", Index: 0},
		{Instance: "b", Type: "worker", Index: 0, Kept: true},
		{Instance: "c", Type: "web", Index: 1, Kept: true},
		{Instance: "d", Type: "web", Index: 0, Kept: true},
	}
	for _, tt := range []struct {
		choice crashedChoice
		want   string // the instance, or a part of the error message
	}{
		{crashedChoice{index: -1}, "b"},
		{crashedChoice{index: -1, process: "web"}, "c"},
		{crashedChoice{index: 0, process: "web"}, "d"},
		{crashedChoice{index: 7}, "no files of a matching crash are kept"},
		{crashedChoice{index: -1, number: 3}, "c"},
		{crashedChoice{index: -1, number: 1}, "the files of crash 1 are not kept"},
		{crashedChoice{index: -1, number: 2, process: "web"}, "crash 2 is of another instance: worker/0"},
		{crashedChoice{index: -1, number: 5}, "crash 5 does not exist: 4 crashes recorded"},
	} {
		c, err := chooseCrash(crashes, tt.choice)
		if err != nil && strings.Contains(err.Error(), tt.want) || err == nil && c.Instance == tt.want {
			continue
		}
		t.Errorf("%+v: %q, %v; want %q", tt.choice, c.Instance, err, tt.want)
	}
}
