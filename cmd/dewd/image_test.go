//go:build integration

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/dewrun/dew/runtime/userns"
)

// imageLayer returns a root file system without a shell: the test's own program, a
// setuid program, and a device.
func imageLayer(t *testing.T) []byte {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	if err != nil {
		t.Fatal(err)
	}
	routeapp, err := os.ReadFile(filepath.Join(programs, "routeapp"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		h    tar.Header
		data []byte
	}{
		{tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/none\nclerk:x:1234:1235:clerk:/srv:/none\n")},
		{tar.Header{Name: "etc/resolv.conf", Typeflag: tar.TypeSymlink, Linkname: "/run/not/there", Mode: 0o777}, nil},
		{tar.Header{Name: "testapp", Mode: 0o6755}, program},
		{tar.Header{Name: "routeapp", Mode: 0o755}, routeapp},
		{tar.Header{Name: "dev/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "dev/sda", Typeflag: tar.TypeBlock, Devmajor: 8, Mode: 0o666}, nil},
	} {
		f.h.Size = int64(len(f.data))
		if err := w.WriteHeader(&f.h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// startRegistry starts Debian's docker-registry on the loopback.
func startRegistry(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("docker-registry"); err != nil {
		t.Fatal("docker-registry is not installed: make setup-test")
	}
	addr := freeAddress(t)
	file := filepath.Join(t.TempDir(), "registry.yml")
	config := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %s}\n", t.TempDir(), addr)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return addr
}

// pushImage pushes an image of one layer to a registry.
func (c *cell) pushImage(ref string, layer []byte, config v1.Config) {
	c.t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		c.t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err == nil {
		image, err = mutate.Config(image, config)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	to, err := name.ParseReference(ref)
	if err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the registry takes "+ref, func() error { return remote.Write(to, image) })
}

// outcome runs dew and returns its output.
func (c *cell) outcome(args ...string) (string, error) {
	out, err := c.dewCommand(args...).CombinedOutput()
	return string(out), err
}

// answer sends a request to the route of an app.
func (c *cell) answer(host string) (string, error) {
	var st struct{ Router string }
	out, err := c.dewCommand("status", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &st)
	}
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, st.Router, http.NoBody)
	if err != nil {
		return "", err
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("status %s: %s", resp.Status, b))
	}
	return string(b), err
}

// An image app runs its own program as its own user on its own port, without a shell
// and without capabilities. After a restage, it runs the present image of the registry.
// A tarball becomes a stack for an app without a shell, and cannot be removed while the
// app exists.
func TestImageAppAndTarballStack(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	c := w.cell
	layer := imageLayer(t)
	ref := startRegistry(t) + "/shop:1"
	c.pushImage(ref, layer, v1.Config{
		Entrypoint: []string{"/testapp"}, Cmd: []string{"serve", ":9000"}, User: "clerk", WorkingDir: "/srv",
		ExposedPorts: map[string]struct{}{"9000/tcp": {}}, Env: []string{"COLOUR=green"},
	})
	c.dew("push", "boxed", "-o", ref, "-m", "64M", "--no-manifest")
	c.eventually("the image app answers", func() error { _, err := c.answer("boxed.dew.localhost"); return err })
	if who := c.userOf("/testapp"); who != "1234:1235" {
		t.Errorf("the image app runs as %s, want 1234:1235", who)
	}
	c.dew("restage", "boxed")
	out, err := c.outcome("push", "other", "-o", strings.Replace(ref, "shop:1", "none:1", 1), "--no-manifest")
	if err == nil || !strings.Contains(out, "the image does not exist in registry") {
		t.Errorf("a missing image: %v\n%s", err, out)
	}

	file := filepath.Join(t.TempDir(), "tiny.tar")
	if err := os.WriteFile(file, layer, 0o600); err != nil {
		t.Fatal(err)
	}
	c.dew("stack", "add", "tiny", file)
	app := t.TempDir()
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	if err == nil {
		err = os.WriteFile(filepath.Join(app, "shop"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.dew("push", "bare", "-p", app, "-b", "binary_buildpack", "-s", "tiny", "-c", "./shop serve :$PORT", "-m", "64M", "--no-manifest")
	c.eventually("the app on the tarball answers", func() error { _, err := c.answer("bare.dew.localhost"); return err })
	if out, err := c.outcome("ssh", "bare", "-c", "ls"); err == nil || !strings.Contains(out, "no shell") {
		t.Errorf("a session without a shell: %v\n%s", err, out)
	}
	if out, err := c.outcome("stack", "remove", "tiny", "-f"); err == nil || !strings.Contains(out, "'bare'") {
		t.Errorf("a stack in use was removed: %v\n%s", err, out)
	}
	if out, err := c.outcome("push", "lost", "-p", app, "-s", "gone", "--no-manifest"); err == nil || !strings.Contains(out, "use 'host' or 'tiny'") {
		t.Errorf("an unknown stack: %v\n%s", err, out)
	}
	c.dew("delete", "bare", "-f")
	c.dew("stack", "remove", "tiny", "-f")
	t.Run("binding files", func(t *testing.T) { w.readsBindingFiles(t, ref) })
}

// readsBindingFiles lets a buildpack app and an image app read their service bindings
// from files, in both forms.
func (w *routeTest) readsBindingFiles(t *testing.T, ref string) {
	w.dew("create-user-provided-service", "store", "-p", `{"uri":"db://here","port":5432}`, "-t", "sql")
	for name, more := range map[string]string{
		"packed":  "",
		"wrapped": "  docker: {image: \"" + ref + "\"}\n",
	} {
		w.pushBound(name, "file-based-vcap-services", more)
		w.awaitResponse(name, "/env?name=VCAP_SERVICES_FILE_PATH", "VCAP_SERVICES_FILE_PATH=/etc/cf-service-bindings/vcap_services")
		w.awaitResponse(name, "/env?name=VCAP_SERVICES", "VCAP_SERVICES=")
		var all map[string][]struct {
			Name        string
			Credentials map[string]any
		}
		_, body := w.get(name, "/file?path=/etc/cf-service-bindings/vcap_services")
		if err := json.Unmarshal([]byte(body), &all); err != nil || len(all["user-provided"]) != 1 || all["user-provided"][0].Credentials["uri"] != "db://here" {
			t.Errorf("%s: the file of the services: %v\n%s", name, err, body)
		}
		w.pushBound(name, "service-binding-k8s", more)
		w.awaitResponse(name, "/env?name=SERVICE_BINDING_ROOT", "SERVICE_BINDING_ROOT=/etc/cf-service-bindings")
		for file, want := range map[string]string{"type": "user-provided", "uri": "db://here", "port": "5432", "tags": `["sql"]`} {
			if _, got := w.get(name, "/file?path=/etc/cf-service-bindings/store/"+file); got != want {
				t.Errorf("%s: the file %s of the binding has %q, want %q", name, file, got, want)
			}
		}
		if status, body := w.get(name, "/file?path=/etc/cf-service-bindings/vcap_services"); status != http.StatusNotFound {
			t.Errorf("%s: the file of the other form: %d %s", name, status, body)
		}
	}
}

// pushBound pushes routeapp with a service and one of the features for binding files.
func (w *routeTest) pushBound(name, feature, more string) {
	w.t.Helper()
	other := map[string]string{"file-based-vcap-services": "service-binding-k8s", "service-binding-k8s": "file-based-vcap-services"}[feature]
	if more == "" {
		w.push(name, fmt.Sprintf("  services: [store]\n  features: {%s: true, %s: false}\n", feature, other))
		return
	}
	file := filepath.Join(filepath.Dir(w.root), name+".yml")
	text := fmt.Sprintf("applications:\n- name: %s\n  command: /routeapp web\n  memory: 128M\n  services: [store]\n  features: {%s: true, %s: false}\n%s", name, feature, other, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.dew("push", "-f", file)
}

// userOf returns the user of a program of an instance.
func (c *cell) userOf(program string) string {
	c.t.Helper()
	for _, leaves := range c.leaves() {
		for _, pid := range leaves["main"] {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if !strings.HasPrefix(string(line), program+"\x00") {
				continue
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				c.t.Fatal(err)
			}
			facts := map[string][]string{}
			for l := range strings.Lines(string(status)) {
				if f := strings.Fields(l); len(f) > 1 {
					facts[strings.TrimSuffix(f[0], ":")] = f[1:]
				}
			}
			if strings.Trim(facts["CapEff"][0]+facts["CapBnd"][0], "0") != "" || facts["NoNewPrivs"][0] != "1" {
				c.t.Errorf("%s has capabilities or may get some: %v %v %v", program, facts["CapEff"], facts["CapBnd"], facts["NoNewPrivs"])
			}
			return c.inside(facts["Uid"][0]) + ":" + c.inside(facts["Gid"][0])
		}
	}
	c.t.Errorf("no process runs %s", program)
	return ""
}

// The cf CLI pushes an image, by flags and by a manifest, and shows it as an image.
func TestCFImage(t *testing.T) {
	s := newStockClient(t, "")
	ref := startRegistry(t) + "/shop:1"
	s.pushImage(ref, imageLayer(t), v1.Config{
		Entrypoint: []string{"/testapp", "serve", ":9000"}, ExposedPorts: map[string]struct{}{"9000/tcp": {}},
	})
	s.cf("push boxed -o "+ref+" -m 64M", "#0 running", `^docker image: +`+ref)
	s.eventually("the image app answers", func() error { _, err := s.get("boxed.dew.localhost", "/"); return err })
	if who := s.userOf("/testapp"); who != "0:0" {
		t.Errorf("the image app runs as %s, want 0:0", who)
	}
	s.cf("restage boxed", "#0 running")
	t.Setenv("CF_DOCKER_PASSWORD", "hush")
	s.write("manifest.yml", []byte("applications:\n- name: listed\n  memory: 64M\n  docker: {image: \""+ref+"\", username: clerk}\n"))
	s.cf("push", "#0 running")
	s.cf("create-app-manifest listed -p /dev/stdout", `^ +image: +"?`+ref)
	s.refuses("push missing --no-manifest -o "+strings.Replace(ref, "shop:1", "none:1", 1), "the image does not exist in registry")
	s.refuses("push boxed --no-manifest -p "+s.dir, "Cannot create bits package for a Docker app")
	s.cf("stacks", `^host\b`)
}

// inside returns the id in its container that an id of the machine stands for. No
// process of a container has an id that belongs to the machine.
func (c *cell) inside(id string) string {
	c.t.Helper()
	n, err := strconv.Atoi(id)
	if err != nil || n < userns.Size {
		c.t.Errorf("outside, the id is %s, want one of a user namespace", id)
	}
	return strconv.Itoa(n % userns.Size)
}
