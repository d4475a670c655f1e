package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pkg/sftp"
	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

func cpCommand(g *command.Set, category string) *cli.Command {
	return g.Command(command.Verb{
		Name: "cp", Args: "SOURCE TARGET", Category: category, Usage: "Copy files into or out of an instance",
		About: "Either SOURCE or TARGET is APP:PATH, a path in an instance. A relative PATH starts in the folder where the app runs.\n\n" +
			"Examples:\n   dew cp shop:logs/today.log .\n   dew cp -r ./fixtures shop:/tmp/fixtures\n   dew cp --crashed shop:core .",
		Flags: append(append(locationFlags(), crashedFlags()...), &cli.BoolFlag{Name: "r", Aliases: []string{"recursive"}, Usage: "Copy folders and their content", DisableDefaultText: true}),
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		o, err := parseCopy(c.Args().Get(0), c.Args().Get(1))
		if err != nil {
			return err
		}
		if o.Location, err = locationOf(c, o.App); err != nil {
			return err
		}
		if o.crashed.requested && o.upload {
			return console.UsageError("cannot copy into a crashed instance: only a temporary copy of its files is open")
		}
		o.recursive = c.Bool("r")
		return runCopy(c.Context, o, Connection{Client: api, Out: out})
	})
}

type copyOptions struct {
	Location
	remote    string // path in the instance
	local     string
	upload    bool
	recursive bool
}

// parseCopy finds out which of the two is in an instance: APP:PATH. A name with a slash
// before its first colon is a local file.
func parseCopy(source, target string) (copyOptions, error) {
	from, fromPath, fromInside := cutLocation(source)
	to, toPath, toInside := cutLocation(target)
	switch {
	case fromInside && toInside:
		return copyOptions{}, console.UsageError("cp cannot copy from one instance to another: SOURCE or TARGET must be a local path")
	case fromInside:
		return copyOptions{Location: Location{App: from}, remote: fromPath, local: target}, nil
	case toInside:
		return copyOptions{Location: Location{App: to}, remote: toPath, local: source, upload: true}, nil
	}
	return copyOptions{}, console.UsageError("one of SOURCE and TARGET must be APP:PATH")
}

func cutLocation(arg string) (name, file string, ok bool) {
	name, file, ok = strings.Cut(arg, ":")
	if file == "" {
		file = "."
	}
	return name, file, ok && name != "" && !strings.Contains(name, "/")
}

// runCopy copies over SFTP.
func runCopy(ctx context.Context, o copyOptions, t Connection) error {
	conn, err := Dial(ctx, o.Location, t)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all files are copied, or there is another error
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	files, err := sftp.NewClient(conn, sftp.UseConcurrentWrites(true))
	if err != nil {
		return fmt.Errorf("cannot copy: %w", Refusal(err))
	}
	defer func() { _ = files.Close() }()
	wait := t.Out.Wait("Copying")
	defer wait.End()
	c := copier{files: files, recursive: o.recursive, out: t.Out, wait: wait}
	if o.upload {
		err = c.upload(o.local, o.remote)
	} else {
		err = c.download(o.remote, o.local)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// copier copies a file, or a folder with its content.
type copier struct {
	files     *sftp.Client
	recursive bool
	out       *console.Console
	wait      *console.Waiting
}

// errFolder is the error for a folder without -r.
func errFolder(name string) error {
	return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot copy %s: it is a folder", name), Advice: "To copy folders, use -r"}
}

// upload copies a local file or folder into the instance. If the target is an existing
// folder, the copy keeps its name.
func (c copier) upload(local, remote string) error {
	info, err := os.Stat(local)
	if err != nil {
		return err
	}
	if info.IsDir() && !c.recursive {
		return errFolder(local)
	}
	if at, err := c.files.Stat(remote); err == nil && at.IsDir() {
		abs, err := filepath.Abs(local) // resolves "."
		if err != nil {
			return err
		}
		remote = path.Join(remote, filepath.Base(abs))
	} else if strings.HasSuffix(remote, "/") {
		return fmt.Errorf("folder %s does not exist in the instance", remote)
	}
	if !info.IsDir() {
		return c.put(local, remote, info.Mode())
	}
	return filepath.WalkDir(local, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(local, file)
		if err != nil {
			return err
		}
		return c.putOne(file, path.Join(remote, filepath.ToSlash(rel)), d)
	})
}

func (c copier) putOne(local, remote string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	switch {
	case d.IsDir():
		if err := c.files.MkdirAll(remote); err != nil {
			return fmt.Errorf("cannot create %s in the instance: %w", remote, err)
		}
		return nil
	case info.Mode().IsRegular():
		return c.put(local, remote, info.Mode())
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(local)
		if err != nil {
			return err
		}
		_ = c.files.Remove(remote) // a link cannot be overwritten
		if err := c.files.Symlink(link, remote); err != nil {
			return fmt.Errorf("cannot create the link %s in the instance: %w", remote, err)
		}
		return nil
	}
	c.out.Warn("skipped " + local + ": it is not a file, folder or link")
	return nil
}

// put copies one file into the instance.
func (c copier) put(local, remote string, mode fs.FileMode) (err error) {
	c.wait.Note("%s", local)
	src, err := os.Open(local)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := c.files.OpenFile(remote, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("cannot write %s in the instance: %w", remote, err)
	}
	_, err = io.Copy(dst, src)
	if err = errors.Join(err, dst.Chmod(mode.Perm()), dst.Close()); err != nil {
		return fmt.Errorf("cannot write %s in the instance: %w", remote, err)
	}
	return nil
}

// download copies a file or folder out of the instance. If the target is an existing
// folder, the copy keeps its name.
func (c copier) download(remote, local string) error {
	info, err := c.files.Stat(remote)
	if err != nil {
		return fmt.Errorf("cannot find %s in the instance: %w", remote, err)
	}
	if info.IsDir() && !c.recursive {
		return errFolder(remote)
	}
	if at, err := os.Stat(local); err == nil && at.IsDir() {
		real, err := c.files.RealPath(remote)
		if err != nil {
			return fmt.Errorf("cannot find %s in the instance: %w", remote, err)
		}
		name, err := nameIn(real)
		if err != nil {
			return err
		}
		local = filepath.Join(local, name)
	}
	if !info.IsDir() {
		dir, err := os.OpenRoot(filepath.Dir(local))
		if err != nil {
			return err
		}
		defer func() { _ = dir.Close() }()
		return c.get(remote, dir, filepath.Base(local), info.Mode())
	}
	if err := os.MkdirAll(local, 0o755); err != nil {
		return err
	}
	// Names and links come from the instance and are not trusted: nothing must be
	// written outside the folder.
	dir, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return c.getTree(remote, dir, ".")
}

// nameIn is the file name of a path in the instance; "." for the root.
func nameIn(real string) (string, error) {
	if path.Clean(real) == "/" {
		return ".", nil
	}
	name := path.Base(real)
	return name, checkName(name)
}

// checkName refuses names that lead to another folder.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("the instance has an invalid file name %q", name)
	}
	return nil
}

func (c copier) getTree(remote string, dir *os.Root, at string) error {
	entries, err := c.files.ReadDir(remote)
	if err != nil {
		return fmt.Errorf("cannot read %s in the instance: %w", remote, err)
	}
	for _, e := range entries {
		name := e.Name()
		if err := checkName(name); err != nil {
			return err
		}
		if err := c.getOne(path.Join(remote, name), dir, filepath.Join(at, name), e); err != nil {
			return err
		}
	}
	return nil
}

func (c copier) getOne(remote string, dir *os.Root, local string, e fs.FileInfo) error {
	switch {
	case e.IsDir():
		if err := dir.Mkdir(local, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return c.getTree(remote, dir, local)
	case e.Mode().IsRegular():
		return c.get(remote, dir, local, e.Mode())
	case e.Mode()&fs.ModeSymlink != 0:
		link, err := c.files.ReadLink(remote)
		if err != nil {
			return fmt.Errorf("cannot read the link %s in the instance: %w", remote, err)
		}
		if err := dir.Remove(local); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return dir.Symlink(link, local)
	}
	c.out.Warn("skipped " + remote + ": it is not a file, folder or link")
	return nil
}

// get copies one file out of the instance.
func (c copier) get(remote string, dir *os.Root, local string, mode fs.FileMode) error {
	c.wait.Note("%s", remote)
	src, err := c.files.Open(remote)
	if err != nil {
		return fmt.Errorf("cannot read %s in the instance: %w", remote, err)
	}
	defer func() { _ = src.Close() }()
	dst, err := dir.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err = errors.Join(err, dst.Chmod(mode.Perm()), dst.Close()); err != nil {
		return fmt.Errorf("cannot copy %s: %w", remote, err)
	}
	return nil
}
