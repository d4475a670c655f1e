package world

import (
	"bufio"
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dewrun/dew/api/client"
)

// Resources counts what belongs to the instances of a world on this machine.
func (w *World) Resources() map[string]int {
	count := func(pattern ...string) int {
		found, _ := filepath.Glob(filepath.Join(pattern...)) // the pattern is correct
		return len(found)
	}
	shims, _ := w.Shims() // /proc can be read
	return map[string]int{
		"run folders":        count(w.Run, "instances", "*"),
		"network namespaces": count(w.Run, "netns", "*"),
		"capture folders":    count(w.volume, "logs", "*", "capture", "*"),
		"tasks":              count(w.Run, "containerd", "state", "io.containerd.runtime.v2.task", "*", "*"),
		"bridge ports":       count("/sys/class/net", w.Names.Bridge, "brif", "*"),
		"cgroups":            len(w.Instances()),
		"shims":              shims,
	}
}

// Sample is a measurement of dewd itself.
type Sample struct {
	Seconds    float64 `json:"seconds"` // since the start of the run
	Memory     float64 `json:"memory"`  // resident bytes
	FDs        float64 `json:"fds"`
	Goroutines float64 `json:"goroutines"`
	Disk       float64 `json:"disk"` // bytes below the root
}

// Measure measures dewd.
func (w *World) Measure(ctx context.Context) (Sample, error) {
	values, err := metrics(ctx, w)
	if err != nil {
		return Sample{}, err
	}
	return Sample{
		Memory: values["process_resident_memory_bytes"], FDs: values["process_open_fds"], Goroutines: values["go_goroutines"],
		Disk: float64(diskUsage(w.volume)),
	}, nil
}

// Spares returns the number of spare instances. dewd has none, unless the environment of
// the suite has DEW_SPARE_INSTANCES=true.
func Spares(ctx context.Context, w *World) (int, error) {
	values, err := metrics(ctx, w)
	return int(values["dew_spare_instances"]), err
}

// metrics returns the metrics of dewd that have no labels.
func metrics(ctx context.Context, w *World) (map[string]float64, error) {
	resp, err := w.Client.Send(ctx, client.Request{Method: http.MethodGet, Path: "/metrics"})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	values := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] = n
		}
	}
	return values, lines.Err()
}

// diskUsage returns the bytes of all files below a folder.
func diskUsage(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // files come and go
		}
		if info, err := d.Info(); err == nil && info.Mode()&os.ModeType == 0 {
			n += allocated(info)
		}
		return nil
	})
	return n
}
