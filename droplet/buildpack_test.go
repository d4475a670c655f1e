package droplet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

func TestBuildpacks(t *testing.T) {
	all := Buildpacks()
	for i, b := range all {
		if b.Position != i+1 || !b.Enabled || !b.Locked || !b.BuiltIn || b.State != BuildpackReady {
			t.Errorf("buildpack = %+v, want it built in, ready and at position %d", b, i+1)
		}
	}
	if last := all[len(all)-1]; last.Name != "binary_buildpack" {
		t.Errorf("last buildpack = %s, want the binary one", last.Name)
	}
	if again := Buildpacks(); again[0].GUID != all[0].GUID || len(again[0].GUID) != 36 || again[0].GUID == stack.GUID(stack.Default) {
		t.Errorf("guid = %s, then %s", all[0].GUID, again[0].GUID)
	}
	for _, good := range [][]string{
		nil, {}, {"binary"}, {"binary_buildpack", "java"}, {"https://me:secret@example.com/b"}, {"git@example.com:a/b.git"}, {"/opt/pack"},
	} {
		if err := CheckBuildpacks(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, why := range map[string]string{
		"rubby_buildpack":               `it does not exist: did you mean ruby_buildpack?`,
		"cobol_buildpack":               `"cobol_buildpack" cannot be used, because it does not exist`,
		"":                              `"" cannot be used`,
		"ftp://me:secret@example.com/b": `"ftp://me:xxxxx@example.com/b" cannot be used`,
		"./pack":                        `"./pack" cannot be used, because it is a local path`,
		"pack.zip":                      `it is a local path, and cf push does not upload buildpacks. An administrator can add it with cf create-buildpack NAME pack.zip POSITION; or use its URL`,
		"ftp://example.com/pack.zip":    `it does not exist`,
		"file:///etc":                   `cannot be used`,
	} {
		err := CheckBuildpacks([]string{"binary", bad})
		var e *BuildpackError
		if !errors.As(err, &e) {
			t.Errorf("%q: %v, want a BuildpackError", bad, err)
			continue
		}
		if !strings.HasPrefix(e.Error(), "Buildpack must be an existing admin buildpack or a valid git URI") || !strings.Contains(e.Error(), why) {
			t.Errorf("%q: %v, want it to say %s", bad, e, why)
		}
	}
}

func TestWithoutSecret(t *testing.T) {
	for name, want := range map[string]string{
		"go_buildpack":                          "go_buildpack",
		"/srv/pack":                             "/srv/pack",
		"https://example.com/b#v1":              "https://example.com/b#v1",
		"https://me:secret@example.com/b#v1":    "https://me:xxxxx@example.com/b#v1",
		"https://secret@example.com/b":          "https://xxxxx@example.com/b",
		"https://me:se%cret@example.com/b":      "https://xxxxx@example.com/b",
		"https://me:sec/ret@example.com/b":      "https://xxxxx@example.com/b",
		"https://example.com/b.zip?sig=secret":  "https://example.com/b.zip?xxxxx",
		"https://me:s@example.com/b.zip?sig=x":  "https://me:xxxxx@example.com/b.zip?xxxxx",
		"ssh://git@example.com/b":               "ssh://git@example.com/b",
		"git@example.com:me/b":                  "git@example.com:me/b",
		"https://example.com:8080/users/@me/b":  "https://example.com:8080/users/@me/b",
		"http://me:sec@ret@example.com/b.git#x": "http://me:xxxxx@example.com/b.git#x",
	} {
		if got := WithoutSecret(name); got != want {
			t.Errorf("%s is shown as %s, want %s", name, got, want)
		}
	}
}

func TestIsZip(t *testing.T) {
	for name, want := range map[string]bool{
		"https://example.com/b.zip": true, "http://me:x@example.com/a/B.ZIP?sig=1": true, "https://example.com/b.zip#v1": true,
		"https://example.com/b.git": false, "ssh://example.com/b.zip": false, "git@example.com:b.zip": false, "/srv/b.zip": false, "b.zip": false,
	} {
		if got := isZip(name); got != want {
			t.Errorf("%s is a zip: %v, want %v", name, got, want)
		}
	}
}

func TestCheckStack(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "host": true, "cflinuxfs3": true, "cflinuxfs4": true, "cflinuxfs5": true,
		"cflinuxfs": false, "cflinuxfs4x": false, "windows": false, "Host": false,
	} {
		if err := stack.Check(name); (err == nil) != ok {
			t.Errorf("stack %q: %v", name, err)
		}
	}
}

// A build with an unknown buildpack is refused. A build with one that an earlier daemon
// stored fails.
func TestBuildRefusesBuildpack(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		k := y.push("a", member{name: "server", text: "#!"})
		var e *BuildpackError
		if _, err := y.builds.Create(context.Background(), BuildRequest{Package: k.GUID, Buildpacks: []string{"cobol"}}); !errors.As(err, &e) {
			t.Errorf("error = %v, want a BuildpackError", err)
		}
		old := Build{GUID: "old", App: "a", Package: k.GUID, Buildpacks: []string{"go_buildpack"}, State: BuildStaging}
		if err := y.builds.builds.Put(old.GUID, old); err != nil {
			t.Fatal(err)
		}
		y.run()
		synctest.Wait()
		if b, err := y.builds.Get(old.GUID); err != nil || b.State != BuildFailed || !strings.Contains(b.Error, `"go_buildpack" cannot be used`) {
			t.Errorf("build = %+v, want it failed", b)
		}
	})
}

// Every build and its droplet are recorded in the transaction that stores them, even a
// droplet that is reused.
func TestBuildsRecord(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		var got []string
		y.builds.Record(func(tx *store.Tx, w Build, d *Droplet) error {
			if d == nil {
				got = append(got, w.By.Name+" begins")
				return nil
			}
			if _, err := y.droplets.droplets.With(tx).Get(d.GUID); err == nil {
				t.Error("the droplet is kept before it is recorded")
			}
			got = append(got, w.By.Name+" "+d.GUID)
			return nil
		})
		y.run()
		ask := func() Build {
			k := y.push("a", member{name: "server", text: "#!"})
			return y.build(BuildRequest{Package: k.GUID, By: app.Actor{Name: "eve"}})
		}
		first, second := ask(), ask()
		if want := []string{"eve begins", "eve " + first.Droplet, "eve begins", "eve " + second.Droplet}; strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("recorded %q, want %q", got, want)
		}
	})
}

// Packages, builds and droplets store their metadata.
func TestNote(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.run()
		k := y.push("a", member{name: "server", text: "#!"})
		b := y.build(BuildRequest{Package: k.GUID, Metadata: app.Metadata{Labels: map[string]string{"a": "1"}}})
		two, bad := "2", "no spaces"
		c := app.MetadataChange{Labels: map[string]*string{"b": &two}}
		wrong := app.MetadataChange{Labels: map[string]*string{"b": &bad}}
		k2, err1 := y.packages.UpdateMetadata(k.GUID, c)
		b2, err2 := y.builds.UpdateMetadata(b.GUID, c)
		d2, err3 := y.droplets.UpdateMetadata(b.Droplet, c)
		if err := errors.Join(err1, err2, err3); err != nil || k2.Metadata.Labels["b"] != "2" || b2.Metadata.Labels["a"] != "1" || d2.Metadata.Labels["b"] != "2" {
			t.Errorf("%v: %+v %+v %+v", err, k2, b2, d2)
		}
		_, err1 = y.packages.UpdateMetadata(k.GUID, wrong)
		_, err2 = y.builds.UpdateMetadata(b.GUID, wrong)
		_, err3 = y.droplets.UpdateMetadata(b.Droplet, wrong)
		if n := len(app.Problems(errors.Join(err1, err2, err3))); n != 3 {
			t.Errorf("%d problems, want one each", n)
		}
		if _, err := y.droplets.UpdateMetadata("nonesuch", c); !errors.Is(err, ErrNotFound) {
			t.Errorf("error = %v, want ErrNotFound", err)
		}
		ks, err1 := y.packages.All()
		bs, err2 := y.builds.All()
		ds, err3 := y.droplets.All()
		if errors.Join(err1, err2, err3) != nil || len(ks) != 1 || len(bs) != 1 || len(ds) != 1 || ks[0].Metadata.Labels["b"] != "2" {
			t.Errorf("all = %+v, %+v, %+v", ks, bs, ds)
		}
	})
}
