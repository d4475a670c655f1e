package containerd_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
)

const someInstance runtime.InstanceID = "0a1b2c3d-0000-4000-8000-abcd"

func labeledSpec() runtime.Spec {
	return runtime.Spec{
		Kind: runtime.KindInstance, Instance: someInstance, App: "app-1", Type: "web",
		Memory: 256 << 20, Address: netip.MustParsePrefix("10.201.0.7/20"),
		Processes: []runtime.ProcessSpec{{Exec: runtime.MainExec}},
	}
}

func TestNamesFor(t *testing.T) {
	t.Parallel()
	plain := names.Names{Namespace: "dew", Bridge: "dew0", Table: "dew", Cgroup: "dew"}
	for _, root := range []string{names.DefaultRoot, names.DefaultRoot + "/", "/var/lib/../lib/dew"} {
		if got := names.For(root); got != plain {
			t.Errorf("NamesFor(%q) = %v, want %v", root, got, plain)
		}
	}
	if a, b := names.For("/srv/dew/"), names.For("/srv/dew"); a != b {
		t.Errorf("the same root has names %v and %v", a, b)
	}
	seen := map[string]string{}
	for _, root := range []string{names.DefaultRoot, "/", "/srv/dew", "/srv/dew2", "/home/a/.dew", "/" + strings.Repeat("long/", 100)} {
		n := names.For(root)
		if len(n.Bridge) > 15 {
			t.Errorf("bridge of %q = %q, longer than the 15 characters of an interface name", root, n.Bridge)
		}
		for what, name := range map[string]string{"namespace": n.Namespace, "bridge": n.Bridge, "table": n.Table, "cgroup": n.Cgroup} {
			key := what + " " + name
			if other, taken := seen[key]; taken {
				t.Errorf("%s belongs to %q and to %q", key, other, root)
			}
			seen[key] = root
		}
	}
}

func TestContainerID(t *testing.T) {
	t.Parallel()
	for range 20 {
		id := runtime.NewInstanceID()
		if got, ok := names.Instance(names.Container(id)); !ok || got != id {
			t.Errorf("instanceOf(%q) = %q, %v", names.Container(id), got, ok)
		}
	}
	id := string(someInstance)
	for _, foreign := range []string{
		"", "dew-", id, "DEW-" + id, "dew-" + id + "x", "dew-" + id + "-draft", "dew-" + strings.ToUpper(id),
		"dew-dew-" + id, "dew-stack-1", "dew-image-" + strings.Repeat("0", 64), "dew-../../etc/0000-0000-0000-abcd",
	} {
		if got, ok := names.Instance(foreign); ok {
			t.Errorf("instanceOf(%q) = %q, want none", foreign, got)
		}
	}
}

func TestLabelsPutMainFirst(t *testing.T) {
	t.Parallel()
	s := runtime.Spec{Instance: runtime.NewInstanceID(), Address: netip.MustParsePrefix("10.201.0.7/20")}
	for _, exec := range []string{"sidecar-10", "sidecar-2", "sidecar-0", runtime.MainExec, "sidecar-1"} {
		s.Processes = append(s.Processes, runtime.ProcessSpec{Exec: exec})
	}
	got, err := names.Spec(names.Labels(s, "boot"))
	if err != nil {
		t.Fatal(err)
	}
	var execs []string
	for _, p := range got.Processes {
		execs = append(execs, p.Exec)
	}
	if want := []string{"main", "sidecar-0", "sidecar-1", "sidecar-2", "sidecar-10"}; !slices.Equal(execs, want) {
		t.Errorf("order = %v, want %v", execs, want)
	}
}

// randomSpec returns a spec with only the fields that are in labels.
func randomSpec(r *rand.Rand) runtime.Spec {
	letters := []rune("abcXYZ059 -_/.,=:\n\"'äß世界\U0001F4A7")
	word := func() string {
		w := make([]rune, r.IntN(12))
		for i := range w {
			w[i] = letters[r.IntN(len(letters))]
		}
		return string(w)
	}
	s := runtime.Spec{
		Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), App: word(), Type: word(), Version: word(), Cell: word(), Droplet: word(), Image: word(),
		Slot:   runtime.SlotID{Process: word(), Generation: r.IntN(1 << 20), Index: r.IntN(1000)},
		Memory: r.Int64(), Disk: r.Int64(),
	}
	s.Address = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}), r.IntN(33))
	for range r.IntN(4) {
		s.Ports = append(s.Ports, 1+r.IntN(65535))
	}
	s.Processes = []runtime.ProcessSpec{{Exec: runtime.MainExec, Source: runtime.ProcessSource(s.Type, ""), Memory: r.Int64()}}
	for i := range r.IntN(13) {
		name := word() + "x" // the registry requires a name
		s.Processes = append(s.Processes, runtime.ProcessSpec{
			Exec: runtime.SidecarExec(i), Name: name, Source: runtime.ProcessSource(s.Type, name), Memory: r.Int64(),
		})
	}
	return s
}

var sameSpec = cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()}

// The next daemon reads exactly the values that this one wrote.
func TestLabelsComeBack(t *testing.T) {
	t.Parallel()
	const seed = 20
	r := rand.New(rand.NewPCG(seed, seed))
	for range 200 {
		want := randomSpec(r)
		l := names.Labels(want, "boot-1")
		if l[names.LabelBoot] != "boot-1" {
			t.Fatalf("label %s = %q, want boot-1", names.LabelBoot, l[names.LabelBoot])
		}
		got, err := names.Spec(l)
		if err != nil {
			t.Fatalf("cannot read the labels of %+v back: %v", want, err)
		}
		if d := cmp.Diff(want, got, sameSpec); d != "" {
			t.Fatalf("spec from labels (-want +got):\n%s", d)
		}
	}
}

// Labels contain neither commands nor environments: every client of containerd could
// read the apps' passwords there.
func TestLabelsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	s := labeledSpec()
	s.Processes = []runtime.ProcessSpec{{Exec: runtime.MainExec, Command: "run --key=hunter2", Env: []string{"PASSWORD=hunter2"}}}
	for k, v := range names.Labels(s, "boot-1") {
		if strings.Contains(v, "hunter2") {
			t.Errorf("label %s = %q holds a secret", k, v)
		}
	}
}

func TestLabelsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	tests := []struct {
		key, value string
		want       string // in the error
	}{
		{"format", "3", "start the newer dewd again"},
		{"format", "", "run.dew/format"},
		{"format", "one", "run.dew/format"},
		{"generation", "-", "run.dew/generation"},
		{"index", "first", "run.dew/index"},
		{"memory", "1G", "run.dew/memory"},
		{"disk", "99999999999999999999", "run.dew/disk"},
		{"address", "10.201.0.7", "run.dew/address"},
		{"ports", "8080,http", "run.dew/ports"},
		{"instance", "../../etc/passwd", "run.dew/instance"},
		{"instance", "", "run.dew/instance"},
	}
	for _, tt := range tests {
		t.Run(tt.key+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			l := names.Labels(labeledSpec(), "boot-1")
			l[names.LabelPrefix+tt.key] = tt.value
			_, err := names.Spec(l)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestLabelsOfANewerFormatSayBothNumbers(t *testing.T) {
	t.Parallel()
	_, err := names.Spec(map[string]string{names.LabelPrefix + "format": "7"})
	const want = "label run.dew/format is 7, but this dewd supports at most 2: start the newer dewd again"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %q", err, want)
	}
}

// labelText returns labels as lines that a fuzzer can change.
func labelText(l map[string]string) string {
	var lines []string
	for k, v := range l {
		lines = append(lines, strings.TrimPrefix(k, names.LabelPrefix)+"="+v)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// For any labels on a container, adoption returns an error or a spec.
func FuzzLabels(f *testing.F) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	for range 5 {
		f.Add(labelText(names.Labels(randomSpec(r), "boot-1")))
	}
	f.Add("")
	f.Add("format=2")
	f.Add("format=1\ninstance=" + string(someInstance) + "\nmemory-sidecar-9223372036854775807=1\nmemory-sidecar--9223372036854775808=1")
	f.Fuzz(func(t *testing.T, text string) {
		l := map[string]string{}
		for line := range strings.Lines(text) {
			k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			l[names.LabelPrefix+k] = v
		}
		s, err := names.Spec(l)
		if err != nil {
			return
		}
		if !s.Instance.Valid() || !s.Address.IsValid() {
			t.Errorf("accepted instance %q with address %s", s.Instance, s.Address)
		}
		again, err := names.Spec(l)
		if err != nil {
			t.Fatalf("the second reading fails: %v", err)
		}
		// Only the processes depend on the order of a map.
		order := func(s runtime.Spec) (execs []string) {
			for _, p := range s.Processes {
				execs = append(execs, p.Exec)
			}
			slices.Sort(execs)
			return execs
		}
		if !slices.Equal(order(s), order(again)) {
			t.Errorf("processes = %v, then %v", order(s), order(again))
		}
	})
}

// The labels of a server are read back as a server.
func TestServerLabels(t *testing.T) {
	s := runtime.Spec{
		Instance: runtime.NewInstanceID(), Slot: runtime.SlotID{Process: "db"}, App: "db", Type: "server", Version: "v1", Kind: runtime.KindService,
		Address:   netip.MustParsePrefix("10.201.0.9/20"),
		Processes: []runtime.ProcessSpec{{Exec: runtime.MainExec, Source: "SERVICE/POSTGRES"}},
	}
	got, err := names.Spec(names.Labels(s, "boot"))
	if err != nil || got.Kind != runtime.KindService || len(got.Processes) != 1 || got.Processes[0].Source != "SERVICE/POSTGRES" {
		t.Errorf("spec = %+v, %v", got, err)
	}
	s.Kind = runtime.KindInstance
	if got, err := names.Spec(names.Labels(s, "boot")); err != nil || got.Kind != runtime.KindInstance {
		t.Errorf("an app's spec = %+v, %v", got, err)
	}
}

// Two trees or two stacks never share a snapshot; two instances of the same tree do.
func TestImageKey(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, image := range []string{"", "a", "b", "ab"} {
		for _, id := range []string{"", "1", "2", "b\n1"} {
			s := runtime.Spec{Instance: runtime.NewInstanceID(), Image: image, Stack: stack.Stack{ID: id}}
			key := names.Image(s)
			if other, taken := seen[key]; taken {
				t.Errorf("image %q on stack %q has the key of %s", image, id, other)
			}
			seen[key] = image + " on " + id
			s.Instance = runtime.NewInstanceID()
			if again := names.Image(s); again != key {
				t.Errorf("another instance has key %s, want %s", again, key)
			}
			if id, ok := names.Instance(key); ok {
				t.Errorf("key %s would be swept as instance %s", key, id)
			}
		}
	}
	if a, b := names.Stack(stack.Stack{ID: "1", Name: "x"}), names.Stack(stack.Stack{ID: "2", Name: "x"}); a == b {
		t.Errorf("two stacks have key %s", a)
	}
}
