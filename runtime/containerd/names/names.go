package names

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

// DefaultRoot is the root of the daemon that has the plain names.
const DefaultRoot = "/var/lib/dew"

// Names are the names of a daemon's resources outside its own folders. Daemons with
// different roots never touch each other's resources.
type Names struct {
	Namespace string // namespace in containerd
	Bridge    string
	Table     string // table in nftables
	Cgroup    string // parent of all instances
}

// For returns the names for a root.
func For(root string) Names {
	if filepath.Clean(root) == DefaultRoot {
		return Names{Namespace: "dew", Bridge: "dew0", Table: "dew", Cgroup: "dew"}
	}
	sum := sha256.Sum256([]byte(filepath.Clean(root)))
	tag := hex.EncodeToString(sum[:4])
	return Names{Namespace: "dew-" + tag, Bridge: "dewbr" + tag, Table: "dew-" + tag, Cgroup: "dew-" + tag}
}

// Prefix is the prefix of the names of containers, snapshots and network namespaces.
const Prefix = "dew-"

// Container returns the id of an instance's container, which is also that of its task
// and its snapshot.
func Container(id runtime.InstanceID) string { return Prefix + string(id) }

// Instance returns the instance id in the name of a container, snapshot or netns.
func Instance(name string) (runtime.InstanceID, bool) {
	id := runtime.InstanceID(strings.TrimPrefix(name, Prefix))
	return id, strings.HasPrefix(name, Prefix) && id.Valid()
}

// The labels of a container: all data that the next daemon needs about it.
const (
	LabelPrefix = "run.dew/"
	LabelFormat = LabelPrefix + "format"
	LabelBoot   = LabelPrefix + "boot"
	// labelBuild marks the container of a build.
	labelBuild = LabelPrefix + "build"
	// labelServer is the log source of a container that belongs to no app.
	labelServer = LabelPrefix + "server"
	// labelTask is the guid of the one-off task that a container runs, and
	// labelTaskSource is the source of its lines.
	labelTask       = LabelPrefix + "task"
	labelTaskSource = LabelPrefix + "task-source"
)

// The formats of labels. A dewd that supports only the first would not find the main process
// of a container that PID 1 started.
const (
	formatExecs = 1
	FormatMain  = 2 // PID 1 starts the main process
)

// StackPrefix starts the names of the snapshots of stacks.
const StackPrefix = "dew-stack-"

// Stack returns the name of the snapshot of a stack.
func Stack(s stack.Stack) string { return StackPrefix + s.ID }

// Image returns the name of the snapshot of a tree on a stack.
func Image(s runtime.Spec) string {
	sum := sha256.Sum256([]byte(s.Image + "\n" + s.Stack.ID))
	return "dew-image-" + hex.EncodeToString(sum[:])
}

// Labels returns the labels that describe an instance.
func Labels(s runtime.Spec, boot string) map[string]string {
	l := map[string]string{
		LabelFormat: strconv.Itoa(formatExecs), LabelBoot: boot,
		LabelPrefix + "cell": s.Cell, LabelPrefix + "app": s.App, LabelPrefix + "process": s.Slot.Process,
		LabelPrefix + "type": s.Type, LabelPrefix + "instance": string(s.Instance),
		LabelPrefix + "generation": strconv.Itoa(s.Slot.Generation), LabelPrefix + "index": strconv.Itoa(s.Slot.Index),
		LabelPrefix + "version": s.Version, LabelPrefix + "droplet": s.Droplet, LabelPrefix + "image": s.Image,
		LabelPrefix + "address": s.Address.String(), LabelPrefix + "memory": strconv.FormatInt(s.Memory, 10),
		LabelPrefix + "disk": strconv.FormatInt(s.Disk, 10),
	}
	switch s.Kind {
	case runtime.KindStaging:
		l[labelBuild] = s.Build
	case runtime.KindService:
		l[labelServer] = s.Processes[0].Source
	case runtime.KindTask:
		l[labelTask], l[labelTaskSource] = s.Task, s.Processes[0].Source
	}
	if s.LogRate != nil {
		l[LabelPrefix+"log-rate"] = strconv.FormatInt(*s.LogRate, 10)
	}
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, strconv.Itoa(p))
	}
	l[LabelPrefix+"ports"] = strings.Join(ports, ",")
	for _, p := range s.Processes {
		if p.Exec != runtime.MainExec {
			l[LabelPrefix+p.Exec] = p.Name
		}
		l[LabelPrefix+"memory-"+p.Exec] = strconv.FormatInt(p.Memory, 10)
	}
	return l
}

// ErrNewerFormat reports that a newer dewd wrote the labels. It concerns all instances,
// so dewd does not start.
var ErrNewerFormat = errors.New("start the newer dewd again")

// Spec reads the labels back.
func Spec(l map[string]string) (runtime.Spec, error) {
	get := func(key string) string { return l[LabelPrefix+key] }
	var firstErr error
	number := func(key string) int64 {
		n, err := strconv.ParseInt(get(key), 10, 64)
		if err != nil && firstErr == nil {
			firstErr = fmt.Errorf("label %s%s: %w", LabelPrefix, key, err)
		}
		return n
	}
	if n := number("format"); n > FormatMain {
		return runtime.Spec{}, fmt.Errorf("label %s is %d, but this dewd supports at most %d: %w", LabelFormat, n, FormatMain, ErrNewerFormat)
	}
	s := runtime.Spec{
		Instance: runtime.InstanceID(get("instance")),
		Slot:     runtime.SlotID{Process: get("process"), Generation: int(number("generation")), Index: int(number("index"))},
		App:      get("app"), Type: get("type"), Version: get("version"), Cell: get("cell"),
		Droplet: get("droplet"), Image: get("image"), Memory: number("memory"), Disk: number("disk"),
	}
	if get("log-rate") != "" {
		rate := number("log-rate")
		s.LogRate = &rate
	}
	addr, err := netip.ParsePrefix(get("address"))
	if err != nil && firstErr == nil {
		firstErr = fmt.Errorf("label %saddress: %w", LabelPrefix, err)
	}
	s.Address = addr
	for _, f := range strings.FieldsFunc(get("ports"), func(r rune) bool { return r == ',' }) {
		p, err := strconv.Atoi(f)
		if err != nil && firstErr == nil {
			firstErr = fmt.Errorf("label %sports: %w", LabelPrefix, err)
		}
		s.Ports = append(s.Ports, p)
	}
	s.Processes = processesFrom(l, s.Type)
	setKind(&s, l)
	if !s.Instance.Valid() && firstErr == nil {
		firstErr = fmt.Errorf("label %sinstance: %q is not a valid instance id", LabelPrefix, s.Instance)
	}
	return s, firstErr
}

// setKind derives the kind of a container from its labels, because there is no label
// for it.
func setKind(s *runtime.Spec, l map[string]string) {
	s.Kind = runtime.KindInstance
	if build := l[labelBuild]; build != "" {
		s.Kind, s.Build = runtime.KindStaging, build
		for i := range s.Processes {
			s.Processes[i].Source = runtime.SourceStaging
		}
	}
	if len(s.Processes) == 0 {
		return
	}
	if source := l[labelServer]; source != "" {
		s.Kind, s.Processes[0].Source = runtime.KindService, source
	}
	if task := l[labelTask]; task != "" {
		s.Kind, s.Task, s.Processes[0].Source = runtime.KindTask, task, l[labelTaskSource]
	}
}

// processesFrom finds main and the sidecars among the labels.
func processesFrom(l map[string]string, processType string) []runtime.ProcessSpec {
	var ps []runtime.ProcessSpec
	for key, value := range l {
		exec, ok := strings.CutPrefix(key, LabelPrefix+"memory-")
		if !ok {
			continue
		}
		memory, _ := strconv.ParseInt(value, 10, 64) // a limit that cannot be read is shown as no limit
		name := l[LabelPrefix+exec]
		ps = append(ps, runtime.ProcessSpec{
			Exec: exec, Name: name, Memory: memory, Source: runtime.ProcessSource(processType, name),
		})
	}
	slices.SortFunc(ps, func(a, b runtime.ProcessSpec) int { return execNumber(a.Exec) - execNumber(b.Exec) })
	return ps
}

// execNumber sorts main before the sidecars, and the sidecars by number.
func execNumber(exec string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(exec, "sidecar-"))
	if err != nil {
		return -1
	}
	return n
}
