package app

import (
	"slices"
	"strings"
	"time"
)

// Where a sidecar comes from.
const (
	OriginUser      = "user"
	OriginBuildpack = "buildpack"
)

// Sidecar is the wish for a process that runs in the containers of one or more
// process types, and ends when they end.
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

func (s Sidecar) clone() Sidecar {
	s.ProcessTypes = slices.Clone(s.ProcessTypes)
	return s
}

func (s Sidecar) attaches(processType string) bool {
	return slices.Contains(s.ProcessTypes, processType)
}

// upperName is the name as log lines and exit records have it. Two names of an app
// that differ only in case could not be told apart there.
func (s Sidecar) upperName() string { return strings.ToUpper(s.Name) }

func sameName(a, b string) bool {
	return Sidecar{Name: a}.upperName() == Sidecar{Name: b}.upperName()
}

// sidecarDiffers tells whether a container of the process type would differ. A
// sidecar that is not there is the zero Sidecar: it attaches to nothing.
func sidecarDiffers(old, s Sidecar, processType string) bool {
	if !old.attaches(processType) && !s.attaches(processType) {
		return false
	}
	return old.attaches(processType) != s.attaches(processType) ||
		old.Name != s.Name ||
		old.Command != s.Command ||
		old.MemoryMB != s.MemoryMB
}

// declaredMB is the memory that the sidecars of a process type declare together.
func declaredMB(sidecars []Sidecar, processType string) int {
	sum := 0
	for _, s := range sidecars {
		if s.attaches(processType) {
			sum += s.MemoryMB
		}
	}
	return sum
}
