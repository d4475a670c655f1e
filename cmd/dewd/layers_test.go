package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/dewrun/dew"

// layers orders the packages into layers: a package can only import packages of lower
// layers. Every package has one.
var layers = map[string]int{
	"cmd/dew": 12, "cmd/dew-buildpack": 12, "cmd/dew-init": 12, "cmd/dew-pod": 12, "cmd/dew-sftp": 12, "cmd/dew-static": 12, "cmd/dewd": 12,
	"api": 11, "cmd/dewd/doctor": 11,
	"api/apps": 10, "api/bits": 10, "api/daemon": 10, "api/logs": 10, "api/market": 10, "api/orgs": 10, "api/routes": 10,
	"api/present": 9, "cmd/dewd/cluster": 9, "fire": 9,
	"api/rest": 8, "fire/check": 8, "fire/faults": 8, "runtime/containerd": 8, "runtime/kubernetes": 8, "services/builtin": 8,
	"api/access": 7, "cli": 7, "fire/load": 7, "fire/page": 7, "runtime/containerd/images": 7, "runtime/containerd/session": 7, "runtime/supervisor": 7,
	"cli/smoketest": 6, "fire/world": 6, "notify/crashmail": 6, "netpolicy/desired": 6, "platform": 6, "runtime/containerd/mainprocess": 6, "runtime/containerd/ocispec": 6, "runtime/containerd/private": 6,
	"runtime/containerd/rootfs": 6, "runtime/supervisor/next": 6,
	"cli/push": 5, "cli/services": 5, "cli/shell": 5, "cli/top": 5, "notify": 5, "route": 5, "runtime/address": 5, "runtime/capture": 2, "runtime/cgroup": 5,
	"runtime/containerd/connection": 5, "runtime/containerd/dns": 5, "runtime/containerd/names": 5, "runtime/containerd/runfile": 5,
	"runtime/containerd/scratch": 5, "runtime/containerd/shim": 5,
	"runtime/network": 5, "runtime/plan": 5, "runtime/policy": 5, "runtime/runtimetest": 5, "runtime/usage": 5, "services/marketplace": 5, "sshd": 5,
	"cli/apps": 4, "cli/daemon": 4, "cli/kubernetes": 4, "cli/logs": 4, "cli/platform": 4, "cli/routes": 4, "notify/directory": 4,
	"auth/sso": 4, "runtime": 4, "runtime/kubernetes/agent": 4, "services/dashboard": 4, "services/osb": 4,
	"cli/command": 3, "console": 3, "droplet": 3, "health": 3, "notify/inbox": 3, "notify/render": 3, "notify/unsubscribe": 3, "notify/smtp": 3, "registry": 3,
	"platform/quota": 3, "netpolicy": 3, "runtime/rollout": 3, "runtime/supervisor/async": 3, "runtime/kubernetes/images": 3, "runtime/kubernetes/install": 3, "runtime/kubernetes/wrapper": 3,
	"services": 3, "smoke": 3,
	"api/cftest": 2, "api/client": 2, "app": 2, "auth": 2, "certs/trust": 2, "cli/console": 2, "drain": 2, "logstream/journal": 2, "droplet/buildcache": 2, "droplet/pool": 2,
	"droplet/nginxconf": 2, "droplet/stack": 2, "droplet/versions": 2, "notify/delivery": 2, "probe": 2, "runtime/kubernetes/kubetest": 2, "runtime/kubernetes/preflight": 2,
	"api/logs/promql": 0, "api/v3": 0, "app/routeoptions": 0, "auth/throttle": 0, "certs": 0, "cmd/dewd/folders": 0, "dist/figures": 0, "dist/kubernetes": 0, "dist/parts": 0, "droplet/archive": 0, "droplet/cause": 0, "droplet/dependencies": 0, "droplet/inspect": 0, "droplet/packing": 0, "egress": 0, "inbound": 0, "notify/plaintext": 0, "logstream": 1, "logstream/disk": 0, "runtime/cgroup/stat": 0, "runtime/disk": 0, "runtime/kubernetes/lease": 0, "runtime/kubernetes/link": 0, "runtime/mainfile": 0, "runtime/process": 0, "runtime/signaltrace": 0, "runtime/userns": 0,
	"services/bindingfiles": 0, "services/servicestest": 0, "spelling": 0, "store": 0, "testkit": 0, "ticket": 0, "verdict": 0, "yamlfile": 0,
}

// The only packages, with those below them, that can import containerd, and the client
// of Kubernetes.
const (
	containerdUser = "runtime/containerd"
	kubernetesUser = "runtime/kubernetes"
)

// testOnly are the packages that only tests import, and other packages of this list.
var testOnly = map[string]bool{
	"testkit": true, "runtime/kubernetes/kubetest": true, "probe": true,
	"fire": true, "fire/check": true, "fire/faults": true, "fire/load": true, "fire/page": true, "fire/world": true,
}

// imported is one import of one file.
type imported struct {
	pkg, path string
	test      bool
}

// layerViolation returns what is wrong with an import, or nothing.
func layerViolation(i imported) string {
	if strings.HasPrefix(i.path, "github.com/containerd/") && i.pkg != containerdUser && !strings.HasPrefix(i.pkg, containerdUser+"/") {
		return "only " + containerdUser + " knows containerd"
	}
	if strings.HasPrefix(i.path, "k8s.io/") && !strings.HasPrefix(i.pkg, "tools/") && i.pkg != kubernetesUser && !strings.HasPrefix(i.pkg, kubernetesUser+"/") {
		return "only " + kubernetesUser + " knows Kubernetes"
	}
	to, inside := strings.CutPrefix(i.path, module+"/")
	if !inside {
		return ""
	}
	if i.pkg == "examples" || strings.HasPrefix(i.pkg, "examples/") {
		return "examples are apps: they know nothing of dew"
	}
	from, known := layers[i.pkg]
	if !known {
		return "package " + i.pkg + " is in no layer"
	}
	target, known := layers[to]
	if !known {
		return "package " + to + " is in no layer"
	}
	if testOnly[to] && i.pkg != to {
		if i.test || testOnly[i.pkg] && target < from {
			return ""
		}
		return to + " is only for tests"
	}
	// Tests can import fakes and test suites above their own package, and an external
	// test its own package. The tests of the databases need containers.
	if i.test && (to == i.pkg || to == "runtime/runtimetest" && from >= layers["runtime"] ||
		i.pkg == "services/builtin" && (to == containerdUser || strings.HasPrefix(to, containerdUser+"/"))) {
		return ""
	}
	if target >= from {
		return "layer " + strconv.Itoa(from) + " imports layer " + strconv.Itoa(target)
	}
	return ""
}

// Packages import only lower layers. All files are checked, whatever their build tags
// are.
func TestLayers(t *testing.T) {
	imports, packages := readImports(t, filepath.Join("..", ".."))
	for _, pkg := range packages {
		if _, known := layers[pkg]; !known && !strings.HasPrefix(pkg, "examples") && !strings.HasPrefix(pkg, "tools/") {
			t.Errorf("package %s is in no layer: add it to a layer here, and a row in CONTRIBUTING.md", pkg)
		}
	}
	for _, i := range imports {
		if why := layerViolation(i); why != "" {
			t.Errorf("%s imports %s: %s", i.pkg, i.path, why)
		}
	}
	// A walk that finds no packages would always pass.
	if !slices.Contains(packages, "cmd/dewd") || !slices.Contains(packages, "store") {
		t.Errorf("packages found = %v, want cmd/dewd and store among them", packages)
	}
}

// CONTRIBUTING.md has a row for every package, with its layer, and no other rows.
func TestMap(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `([^`]+)` \\| .+ \\|$").FindAllStringSubmatch(string(b), -1) {
		rows[row[2]], _ = strconv.Atoi(row[1]) // a digit
	}
	if diff := cmp.Diff(layers, rows); diff != "" {
		t.Errorf("the map of packages in CONTRIBUTING.md differs (-layers +map):\n%s", diff)
	}
}

func TestLayerViolation(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   imported
		want string
	}{
		{"down", imported{pkg: "runtime", path: module + "/app"}, ""},
		{"up", imported{pkg: "app", path: module + "/runtime"}, "layer 2 imports layer 4"},
		{"sideways", imported{pkg: "health", path: module + "/droplet"}, "layer 3 imports layer 3"},
		{"commands are not libraries", imported{pkg: "cmd/dew", path: module + "/cmd/dewd"}, "layer 12 imports layer 12"},
		{"unknown importer", imported{pkg: "util", path: module + "/app"}, "package util is in no layer"},
		{"unknown import", imported{pkg: "api", path: module + "/util"}, "package util is in no layer"},
		{"standard library", imported{pkg: "store", path: "os"}, ""},
		{"containerd in the engine", imported{pkg: "runtime/containerd", path: "github.com/containerd/containerd/v2/client"}, ""},
		{"containerd below the engine", imported{pkg: "runtime/containerd/images", path: "github.com/containerd/containerd/v2/client"}, ""},
		{"containerd elsewhere", imported{pkg: "cmd/dewd", path: "github.com/containerd/errdefs"}, "only runtime/containerd knows containerd"},
		{"containerd in a test elsewhere", imported{pkg: "runtime", path: "github.com/containerd/errdefs", test: true}, "only runtime/containerd knows containerd"},
		{"testkit in tests", imported{pkg: "store", path: module + "/testkit", test: true}, ""},
		{"testkit outside of tests", imported{pkg: "runtime", path: module + "/testkit"}, "testkit is only for tests"},
		{"testkit in a package for tests", imported{pkg: "runtime/kubernetes/kubetest", path: module + "/testkit"}, ""},
		{"a package for tests outside of tests", imported{pkg: "cmd/dewd", path: module + "/runtime/kubernetes/kubetest"}, "runtime/kubernetes/kubetest is only for tests"},
		{"fakes in tests", imported{pkg: "runtime", path: module + "/runtime/runtimetest", test: true}, ""},
		{"fakes outside of tests", imported{pkg: "runtime", path: module + "/runtime/runtimetest"}, "layer 4 imports layer 5"},
		{"external test", imported{pkg: "store", path: module + "/store", test: true}, ""},
		{"test upwards", imported{pkg: "store", path: module + "/app", test: true}, "layer 0 imports layer 2"},
		{"the engine's suite", imported{pkg: "runtime/containerd", path: module + "/runtime/runtimetest", test: true}, ""},
		{"fakes below what they stand on", imported{pkg: "app", path: module + "/runtime/runtimetest", test: true}, "layer 2 imports layer 5"},
		{"example", imported{pkg: "examples/hello", path: module + "/store"}, "examples are apps: they know nothing of dew"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := layerViolation(tt.in); got != tt.want {
				t.Errorf("breach = %q, want %q", got, tt.want)
			}
		})
	}
}

// readImports returns the imports of every package below root.
func readImports(t *testing.T, root string) (imports []imported, packages []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && file != root && (name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		packages = append(packages, pkg)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, imported{pkg: pkg, path: p, test: strings.HasSuffix(name, "_test.go")})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(packages)
	return imports, slices.Compact(packages)
}
