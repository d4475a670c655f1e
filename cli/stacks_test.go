package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// stackRoutes stores stacks as the daemon does.
func (d *fakeDaemon) stackRoutes(handle func(string, func(*http.Request, []byte) any)) {
	all := []v3.StackDetails{{GUID: "s-host", Name: "host", Kind: "host", State: v3.StackReady, ID: "0123", Description: "this machine", Default: true}}
	calls := 0
	handle("GET /dew/v1/stacks", func(*http.Request, []byte) any { return v3.Stacks{Stacks: all} })
	handle("POST /dew/v1/stacks", func(_ *http.Request, b []byte) any {
		var m v3.MakeStack
		d.decode(b, &m)
		s := v3.StackDetails{GUID: "s-" + m.Name, Name: m.Name, Kind: "debian", State: v3.StackProcessing}
		if m.Image != nil {
			s.Kind = "image"
		}
		all = append(all, s)
		return answer{202, s}
	})
	handle("GET /dew/v1/stacks/{guid}", func(r *http.Request, _ []byte) any {
		i := slices.IndexFunc(all, func(s v3.StackDetails) bool { return s.GUID == r.PathValue("guid") })
		switch calls++; {
		case calls == 1:
			all[i].Progress = "downloading packages with apt..."
		case strings.Contains(all[i].Name, "bad"):
			all[i].State, all[i].Error = v3.StackFailed, "there is no such image"
		default:
			all[i].State, all[i].Size, all[i].Progress = v3.StackReady, 3<<20, ""
		}
		return all[i]
	})
	handle("POST /dew/v1/stacks/upload", func(r *http.Request, b []byte) any {
		s := v3.StackDetails{GUID: "s-up", Name: r.URL.Query().Get("name"), Kind: "tarball", State: v3.StackReady, Size: int64(len(b))}
		all = append(all, s)
		return answer{201, s}
	})
	handle("DELETE /dew/v1/stacks/{guid}", func(r *http.Request, _ []byte) any {
		if r.PathValue("guid") == "s-debian" {
			return unique("Cannot delete stack 'debian' because apps are using it: 'shop'")
		}
		all = slices.DeleteFunc(all, func(s v3.StackDetails) bool { return s.GUID == r.PathValue("guid") })
		return answer{204, nil}
	})
}

func TestStacks(t *testing.T) {
	d := newRemoteDaemon(t)
	d.dew("stacks").must(t, 0, "host   host   ready   active         0123", "this machine")
	d.dew("stacks", "--json").must(t, 0, `"kind": "host"`)
	d.dew("stack", "host").must(t, 0, "kind", "0123")
	d.dew("stack", "hots").must(t, 1, "hots", "host")

	d.dew("stack", "build", "debian", "--include", "ruby,default-jre-headless", "--include", "jq").must(t, 0, "downloading packages with apt...", "Added stack debian (3.0M)")
	if got := d.body("POST /dew/v1/stacks"); got != `{"name":"debian","debian":{"include":["ruby","default-jre-headless","jq"]}}` {
		t.Errorf("the body is %s", got)
	}
	d.dew("stack", "build", "gentoo").must(t, 2, "only debian")
	d.dew("stack", "build", "debian", "--name", "lean").must(t, 0, "Added stack lean")

	d.types("hush\n", "stack", "add", "shop", "--image", "127.0.0.1:5000/shop:1", "--username", "clerk", "--password-stdin").must(t, 0, "Added stack shop")
	if got := d.body("POST /dew/v1/stacks"); got != `{"name":"shop","image":{"image":"127.0.0.1:5000/shop:1","username":"clerk","password":"hush"}}` {
		t.Errorf("the body is %s", got)
	}
	d.dew("stack", "add", "bad", "--image", "127.0.0.1:5000/none").must(t, 3, "cannot create stack bad: there is no such image")

	file := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(file, []byte("twelve bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.dew("stack", "add", "tiny", file).must(t, 0, "Uploading "+file+", 12B", "Added stack tiny")
	d.dew("stack", "add", "tiny", filepath.Join(file, "none")).must(t, 2, "cannot read the stack")
	d.dew("stack", "add", "tiny", filepath.Dir(file)).must(t, 2, "is not a file")
	d.dew("stack", "add", "tiny").must(t, 2, "either a FILE or --image")
	d.dew("stack", "add").must(t, 2, "NAME")
	d.dew("stack", "mend", "tiny").must(t, 2, "use add, build or remove")

	d.dew("stack", "remove", "tiny").must(t, 2, "-f")
	d.dew("stack", "remove", "tiny", "-f").must(t, 0, "Removed stack tiny")
	d.dew("stack", "remove", "tiny", "-f").must(t, 0, "Stack tiny does not exist")
	d.dew("stack", "remove", "debian", "-f").must(t, 1, "apps are using it: 'shop'")
}

// An image is pushed without files.
func TestPushImage(t *testing.T) {
	d := newDaemon(t)
	t.Chdir(t.TempDir())
	t.Setenv("CF_DOCKER_PASSWORD", "hush")
	d.dew("push", "shop", "-o", "127.0.0.1:5000/shop:1", "--docker-username", "clerk").must(t, 0, "Pushing app shop")
	if got := d.body("POST /v3/packages"); !strings.Contains(got, `"type":"docker"`) || !strings.Contains(got, `"data":{"image":"127.0.0.1:5000/shop:1","username":"clerk","password":"hush"}`) {
		t.Errorf("the body is %s", got)
	}
	if n := d.count("POST /v3/packages/package-1/upload"); n != 0 {
		t.Errorf("%d uploads, want none", n)
	}
	d.dew("push", "shop", "-o", "x", "-p", ".").must(t, 2, "either an image or made of files")
	d.dew("push", "shop", "--docker-username", "clerk").must(t, 2, "--docker-image")
	t.Setenv("CF_DOCKER_PASSWORD", "")
	d.dew("push", "shop", "-o", "x", "--docker-username", "clerk").must(t, 2, "CF_DOCKER_PASSWORD")
}
