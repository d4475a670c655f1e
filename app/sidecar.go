package app

import (
	"slices"
	"strings"
	"time"
)

// The origins of a sidecar.
const (
	OriginUser      = "user"
	OriginBuildpack = "buildpack"
)

// Sidecar is the desired state of a process that runs in the containers of one or more
// process types, and stops with them.
type Sidecar struct {
	GUID         string    `json:"guid"`
	App          string    `json:"app"` // guid
	Name         string    `json:"name"`
	Command      string    `json:"command"`
	ProcessTypes []string  `json:"process_types"`
	MemoryMB     int       `json:"memory_mb,omitempty"` // 0: not declared
	Origin       string    `json:"origin"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// Clone returns a copy that shares nothing with s.
func (s Sidecar) Clone() Sidecar {
	s.ProcessTypes = slices.Clone(s.ProcessTypes)
	return s
}

// AttachesTo reports whether the sidecar runs in containers of the process type.
func (s Sidecar) AttachesTo(processType string) bool {
	return slices.Contains(s.ProcessTypes, processType)
}

// UpperName returns the name in log lines and exit records. Two names of an app that
// differ only in case would be the same there.
func (s Sidecar) UpperName() string { return strings.ToUpper(s.Name) }

// SameName reports whether two names of sidecars differ at most in case.
func SameName(a, b string) bool {
	return Sidecar{Name: a}.UpperName() == Sidecar{Name: b}.UpperName()
}

// DeclaredMB returns the memory that the sidecars of a process type declare together.
func DeclaredMB(sidecars []Sidecar, processType string) int {
	sum := 0
	for _, s := range sidecars {
		if s.AttachesTo(processType) {
			sum += s.MemoryMB
		}
	}
	return sum
}
