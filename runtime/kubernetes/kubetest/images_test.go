//go:build k8stest

package kubetest

import (
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/dewrun/dew/testkit"
)

// pauseImage returns an image with the program pause. Images with different labels have
// different IDs: kubelet does not run an image that it pulled under another name.
func pauseImage(t *testing.T, c *Cluster, label string) v1.Image {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "layer.tar")
	if out, err := osexec.Command("tar", "-C", filepath.Dir(c.Program), "-cf", archive, "pause").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	layer := testkit.Must(tarball.LayerFromFile(archive))(t)
	image := testkit.Must(mutate.AppendLayers(empty.Image, layer))(t)
	return testkit.Must(mutate.Config(image, v1.Config{Labels: map[string]string{"test": label}}))(t)
}

func runImage(t *testing.T, c *Cluster, image, policy, node string) {
	t.Helper()
	namespace := c.Namespace(t, Restricted)
	spec := podSpec(container(image, "main", "64Mi", "/pause"))
	spec["containers"].([]Object)[0]["imagePullPolicy"] = policy
	spec["nodeName"] = node
	c.Create(t, "/api/v1/namespaces/"+namespace+"/pods", Object{"metadata": Object{"name": "image"}, "spec": spec})
	waitPod(t, c, namespace, "image")
}

// Every node pulls images from the registry.
func TestRegistry(t *testing.T) {
	c := Open(t)
	reference := testkit.Must(name.ParseReference(c.Registry+"/test/pause:1", name.Insecure))(t)
	testkit.Eventually(t, "the registry accepts the image", func() error {
		return remote.Write(reference, pauseImage(t, c, t.Name()), remote.WithContext(t.Context()))
	})
	for _, node := range c.Nodes {
		runImage(t, c, reference.String(), "Always", node)
	}
}

// A node runs an image from an archive that a test imported.
func TestImportImage(t *testing.T) {
	c := Open(t)
	folder, archive := t.TempDir(), filepath.Join(t.TempDir(), "image.tar")
	const image = "cluster.test/imported:1"
	path := testkit.Must(layout.Write(folder, empty.Index))(t)
	if err := path.AppendImage(pauseImage(t, c, t.Name()), layout.WithAnnotations(map[string]string{"io.containerd.image.name": image})); err != nil {
		t.Fatal(err)
	}
	if out, err := osexec.Command("tar", "-C", folder, "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.ImportImage(t, c.Nodes[0], archive)
	runImage(t, c, image, "Never", c.Nodes[0])

	if err := os.Truncate(archive, 1000); err != nil {
		t.Fatal(err)
	}
	resp, err := c.control.Post("http://cluster/machines/"+c.Nodes[0]+"/images", "", testkit.Open(os.Open(archive))(t))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("import of a broken archive: %s, want 422", resp.Status)
	}
}
