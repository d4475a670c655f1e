package registry

import (
	"testing"

	"github.com/dewrun/dew/app"
)

func TestFlags(t *testing.T) {
	r, _ := inSpace(t)
	all := one[[]app.Flag](t)(r.Flags())
	if len(all) != len(flags) {
		t.Errorf("%d flags, want %d", len(all), len(flags))
	}
	f := one[app.Flag](t)(r.UpdateFlag(app.FlagScaling, func(f *app.Flag) { f.Enabled, f.Message, f.Name = false, "not now", "x" }))
	if got := one[app.Flag](t)(r.Flag(app.FlagScaling)); got != f || got.Enabled || got.Message != "not now" || got.Name != app.FlagScaling {
		t.Errorf("flag = %+v, want it off", got)
	}
	for _, f := range one[[]app.Flag](t)(r.Flags()) {
		if f.Name == app.FlagScaling && f.Enabled {
			t.Error("the list has it on")
		}
	}
	if _, err := r.UpdateFlag("unset_roles_by_username", func(f *app.Flag) { f.Enabled = false }); len(app.Problems(err)) != 1 {
		t.Errorf("a fixed flag was switched: %v", err)
	}
	if f, err := r.UpdateFlag("unset_roles_by_username", func(f *app.Flag) { f.Enabled = true }); err != nil || !f.Enabled {
		t.Errorf("a fixed flag cannot be set to what it is: %v", err)
	}
	if _, err := r.Flag("nonesuch"); err == nil {
		t.Error("there is a flag nonesuch")
	}
}

func TestMetadata(t *testing.T) {
	r, _ := inSpace(t)
	b := "b"
	want := one[app.Metadata](t)(r.UpdateNotes("g", app.MetadataChange{Labels: map[string]*string{"a": &b}}))
	if got := one[app.Metadata](t)(r.Notes("g")); !got.Equal(want) || got.Labels["a"] != "b" {
		t.Errorf("notes = %+v, want %+v", got, want)
	}
	bad := "no spaces"
	if _, err := r.UpdateNotes("g", app.MetadataChange{Labels: map[string]*string{"a": &bad}}); len(app.Problems(err)) != 1 {
		t.Errorf("error = %v, want one problem", err)
	}
}
