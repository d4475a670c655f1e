package main

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/cmd/dewd/doctor"
)

// expect checks a finding's level and text. A finding that is not ok must say what to
// do.
func expect(t *testing.T, got doctor.Finding, level, says string) {
	t.Helper()
	if got.Level != level || !strings.Contains(got.What, says) {
		t.Errorf("finding = %s %q, want %s with %q", got.Level, got.What, level, says)
	}
	if (got.Do == "") != (got.Level == doctor.OK) {
		t.Errorf("finding %s %q says to do %q", got.Level, got.What, got.Do)
	}
}

// With a FAIL, doctor exits with 9 and prints only the findings, those about the
// daemon's own parts among them.
func TestDoctorStatus(t *testing.T) {
	a := newApp(defaultConfig())
	var out bytes.Buffer
	a.Writer, a.ErrWriter = &out, io.Discard
	root := t.TempDir()
	err := a.Run([]string{"dewd", "doctor", "--json", "--root", root, "--init", filepath.Join(root, "none")})
	if statusOf(err) != statusInfrastructure || err.Error() != "" {
		t.Errorf("error = %v, status %d, want a silent %d", err, statusOf(err), statusInfrastructure)
	}
	var found []doctor.Finding
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	cfg := defaultConfig()
	cfg.Root = root
	if want := doctor.New(cfg.forDoctor()).Examine(t.Context(), cfg.ownChecks()...); len(found) != len(want) {
		t.Errorf("%d findings, want %d", len(found), len(want))
	}
}
