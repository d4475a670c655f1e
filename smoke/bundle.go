package smoke

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

const (
	bundleTime  = time.Minute
	bundleLines = 20_000 // log lines per app
	newEvents   = 200
)

// Bundle writes an archive with the evidence of a failure.
type Bundle struct {
	File   string
	Log    string                                       // file of a private daemon's own log, empty for none
	Doctor func(ctx context.Context, w io.Writer) error // can be nil
}

// Write writes the bundle. If a part cannot be read, the bundle contains the error
// instead, because a part of the evidence is better than none.
func (b Bundle) Write(ctx context.Context, s Evidence) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTime)
	defer cancel()
	f, err := os.CreateTemp(filepath.Dir(b.File), ".smoke-*")
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	w := &bundleWriter{tar: tar.NewWriter(z), dir: strings.TrimSuffix(filepath.Base(b.File), ".tar.gz"), at: time.Now()}
	b.fill(ctx, s, w)
	if err := errors.Join(w.err, w.tar.Close(), z.Close(), f.Chmod(0o600), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), b.File)
}

// bundleWriter adds files to an archive, each without secrets.
type bundleWriter struct {
	tar  *tar.Writer
	dir  string
	at   time.Time
	mask masker
	err  error // the first write error
}

func (w *bundleWriter) add(name, text string) {
	if w.err != nil {
		return
	}
	text = w.mask.text(text)
	head := &tar.Header{Name: path.Join(w.dir, name), Mode: 0o600, Size: int64(len(text)), ModTime: w.at}
	if w.err = w.tar.WriteHeader(head); w.err == nil {
		_, w.err = io.WriteString(w.tar, text)
	}
}

// addJSON adds a value, or the error why there is none.
func (w *bundleWriter) addJSON(name string, v any, err error) {
	if err != nil {
		w.add(name+".error", err.Error()+"\n")
		return
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		w.add(name+".error", err.Error()+"\n")
		return
	}
	w.add(name, string(b)+"\n")
}

func (b Bundle) fill(ctx context.Context, s Evidence, w *bundleWriter) {
	daemon := s.SpaceClient.Client
	apps, err := daemon.Apps().List(ctx)
	// Environments come first, because they contain the secrets to hide in the rest.
	for _, a := range apps {
		env, err := daemon.Apps().Env(ctx, a.GUID)
		w.addJSON("apps/"+a.Name+"/env.json", w.mask.env(env), err)
	}
	if err != nil {
		w.add("apps.error", err.Error()+"\n")
	}
	w.addJSON("report.json", s.Result, nil)
	for i, name := range s.Folder.Manifests {
		w.manifest(fmt.Sprintf("manifest-%d.yml", i+1), name)
	}
	for _, a := range apps {
		w.app(ctx, a, s)
	}
	status, err := daemon.Daemon().Status(ctx)
	w.addJSON("status.json", status, err)
	if b.Log != "" {
		text, err := os.ReadFile(b.Log)
		if err != nil {
			text = []byte(err.Error())
		}
		w.add("dewd.log", string(text))
	}
	if b.Doctor != nil {
		var out strings.Builder
		if err := b.Doctor(ctx, &out); err != nil {
			fmt.Fprintf(&out, "\n%v\n", err)
		}
		w.add("doctor.txt", out.String())
	}
}

// manifest adds a manifest without the secret values of its environment.
func (w *bundleWriter) manifest(name, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		w.add(name+".error", err.Error()+"\n")
		return
	}
	m, _, err := app.ParseManifest(text, nil)
	if err != nil {
		w.add(name+".error", err.Error()+"\n")
		return
	}
	w.mask.manifest(&m)
	out, err := m.YAML()
	if err != nil {
		w.add(name+".error", err.Error()+"\n")
		return
	}
	w.add(name, string(out))
}

// app adds all data about one app.
func (w *bundleWriter) app(ctx context.Context, a v3.App, s Evidence) {
	daemon, dir := s.SpaceClient.Client, "apps/"+a.Name+"/"
	var lines strings.Builder
	err := daemon.Logs().Stream(ctx, a.GUID, client.LogQuery{Newest: bundleLines}, client.Lines{Line: func(l *v3.Line) error {
		lines.WriteString(lineText(l) + "\n")
		return nil
	}})
	if err != nil {
		fmt.Fprintf(&lines, "%v\n", err)
	}
	w.add(dir+"log.txt", lines.String())
	events, err := daemon.Apps().Events(ctx, a.GUID, newEvents)
	w.addJSON(dir+"events.json", events, err)
	crashes, err := daemon.Processes().Crashes(ctx, a.GUID)
	w.addJSON(dir+"crashes.json", crashes, err)
	var view strings.Builder
	if err := s.SpaceClient.Commands.Show(ctx, a.Name, &view); err != nil {
		fmt.Fprintf(&view, "%v\n", err)
	}
	w.add(dir+"app.txt", view.String())
}

// BundleName returns the file name of a folder's bundle. file is the requested name, or
// empty.
func BundleName(file string, f Folder, single bool) string {
	name := filepath.Base(f.Dir)
	if base := filepath.Base(f.Name); strings.HasSuffix(base, ".yml") || strings.HasSuffix(base, ".yaml") {
		name += "-" + strings.TrimSuffix(strings.TrimSuffix(base, ".yml"), ".yaml")
	}
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, name)
	switch {
	case file == "":
		return "smoke-" + name + ".tar.gz"
	case single:
		return file
	default:
		return strings.TrimSuffix(strings.TrimSuffix(file, ".gz"), ".tar") + "-" + name + ".tar.gz"
	}
}
