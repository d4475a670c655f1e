package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// settleTime is how long files must not change before a push: editors and compilers
// write more than once.
const settleTime = 300 * time.Millisecond

// watcher waits for changes of files and folders.
type watcher struct {
	notify *fsnotify.Watcher
	settle time.Duration
	files  map[string]bool
	trees  map[string]ignoreRules // by folder
}

// NewWatcher watches files, and folders except for their ignored files.
func NewWatcher(paths []string) (*watcher, error) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch files: %w", err)
	}
	w := &watcher{notify: n, settle: settleTime, files: map[string]bool{}, trees: map[string]ignoreRules{}}
	for _, p := range paths {
		if err := w.add(p); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot watch %s: %w", p, err), n.Close())
		}
	}
	return w, nil
}

func (w *watcher) Close() error { return w.notify.Close() }

func (w *watcher) add(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		// Watch the folder, because editors replace the file.
		w.files[path] = true
		return w.notify.Add(filepath.Dir(path))
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(path, ignoreFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	rules, err := parseIgnore(string(text))
	if err != nil {
		return err
	}
	w.trees[path] = rules
	w.files[filepath.Join(path, ignoreFile)] = true
	return w.follow(path)
}

// follow watches a folder and its subfolders, except for ignored ones.
func (w *watcher) follow(folder string) error {
	return filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // already deleted
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case !w.counts(name, true):
			return fs.SkipDir
		}
		return w.notify.Add(name)
	})
}

// counts reports whether a changed file belongs to the push.
func (w *watcher) counts(name string, isFolder bool) bool {
	if w.files[name] {
		return true
	}
	for folder, rules := range w.trees {
		rel, err := filepath.Rel(folder, name)
		if err == nil && filepath.IsLocal(rel) && !rules.ignored(filepath.ToSlash(rel), isFolder) {
			return true
		}
	}
	return false
}

// Wait returns the name of a changed file after the changes have stopped. It returns
// nothing when ctx is done.
func (w *watcher) Wait(ctx context.Context) (string, error) {
	var first string
	quiet := time.NewTimer(w.settle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", nil
		case <-quiet.C:
			if first != "" {
				return first, nil
			}
		case err := <-w.notify.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return "", fmt.Errorf("cannot watch files: %w", err)
			}
			first = cmp.Or(first, "many files") // the kernel dropped events
			quiet.Reset(w.settle)
		case e := <-w.notify.Events:
			if w.changed(e) {
				first = cmp.Or(first, e.Name)
				quiet.Reset(w.settle)
			}
		}
	}
}

// changed reports whether an event is a change. It watches new folders.
func (w *watcher) changed(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		// Reading a file can cause this event. A changed mode is pushed with the next write.
		return false
	}
	info, err := os.Lstat(e.Name)
	isFolder := err == nil && info.IsDir()
	if !w.counts(e.Name, isFolder) {
		return false
	}
	if isFolder {
		_ = w.follow(e.Name) // it can be deleted already
	}
	return true
}

// watchPush pushes, and pushes again when the manifest or the files change, until ctx
// is done. After a failed push it waits for the next change.
func watchPush(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	if err := o.checkBuild(); err != nil {
		return err
	}
	paths, err := o.paths(out)
	if err != nil {
		return err
	}
	for {
		// A build writes files, so changes while it runs do not count.
		err := o.build(ctx, out)
		// Before the push, to notice changes that are not part of it.
		w, werr := NewWatcher(existing(paths))
		if werr != nil {
			return werr
		}
		if err == nil {
			err = pushBuilt(ctx, o, api, out)
		}
		if err != nil && ctx.Err() == nil {
			out.Warn(command.Explain(err))
		}
		out.Say("Watching for changes. To stop, press Ctrl-C; the app keeps running")
		changed, err := w.Wait(ctx)
		if err := errors.Join(err, w.Close()); err != nil || ctx.Err() != nil {
			return err
		}
		out.Say("\n%s changed", changed)
		if now, err := o.paths(out); err == nil { // the manifest can be half written
			paths = now
		}
	}
}

// paths are the manifest and the files that it pushes.
func (o Options) paths(out *console.Console) ([]string, error) {
	m, file, err := Manifest(o, out)
	if err != nil {
		return nil, err
	}
	var all []string
	if file != "" {
		all = append(all, file)
	}
	all = append(all, o.Manifest.VarsFiles...)
	if o.Build {
		all = append(all, filepath.Dir(file)) // with the sources
	}
	all = append(all, localFolders(m.Applications, o, file)...)
	for i := range m.Applications {
		a := &m.Applications[i]
		if a.Docker != nil || o.Image != "" {
			continue
		}
		t := target{app: a, manifest: file}
		if err := t.checkBits(o); err != nil && !o.Build {
			return nil, err
		}
		all = append(all, t.bitsPath(o))
	}
	return all, nil
}

// existing returns the paths that exist.
func existing(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		_, err := os.Stat(p)
		return errors.Is(err, fs.ErrNotExist)
	})
}
