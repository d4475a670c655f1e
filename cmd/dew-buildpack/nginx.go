package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/dewrun/dew/droplet/nginxconf"
)

// resolvConf has the DNS servers of a container.
const resolvConf = "/etc/resolv.conf"

// findNginx finds the nginx of the stack and asks it about itself.
func findNginx() (program string, n nginxconf.Nginx, err error) {
	if program, err = exec.LookPath("nginx"); err != nil {
		program = "/usr/sbin/nginx"
	}
	out, err := exec.Command(program, "-V").CombinedOutput()
	if err != nil {
		return "", n, fmt.Errorf("cannot run nginx: %w", err)
	}
	return program, nginxconf.ParseNginx(string(out)), nil
}

// prepared is a configuration that nginx can use.
type prepared struct {
	files  nginxconf.Files
	global string
}

// prepare fills in the templates of the app in a folder.
func prepare(folder, port string, n nginxconf.Nginx) (p prepared, err error) {
	app := os.DirFS(folder)
	files, err := nginxconf.Read(app)
	if err != nil {
		return p, err
	}
	plain, err := nginxconf.PlainVariables(app)
	if err != nil {
		return p, err
	}
	o := nginxconf.Options{Port: port, Env: os.Getenv, Modules: n.Modules, Home: folder, Resolv: resolvConf}
	if files, err = nginxconf.Render(files, o, app, plain); err != nil {
		return p, err
	}
	p.files, p.global = nginxconf.Prepare(files, n)
	return p, nil
}

// write replaces the files in a folder. It creates new files, because those of the
// folder can be links to the files of the app.
func write(folder string, files nginxconf.Files) error {
	for name, text := range files {
		p := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil { //nolint:forbidigo // made again at each start
			return err
		}
	}
	return nil
}

// checkNginx checks the configuration of the app in a folder while staging. The copy of
// the folder is changed.
func checkNginx(folder, copied, reason string, out, errs io.Writer) int {
	err := tryNginx(folder, copied, out)
	if bad := (*nginxconf.Error)(nil); errors.As(err, &bad) {
		return refuse(reason, bad.Error(), errs)
	}
	if err != nil {
		return refuse(reason, "cannot check "+nginxconf.Main+": "+err.Error(), errs)
	}
	return 0
}

func tryNginx(folder, copied string, out io.Writer) error {
	program, n, err := findNginx()
	if err != nil {
		return err
	}
	mark := rand.Text() // occurs nowhere in the files
	p, err := prepare(folder, mark, n)
	if err != nil {
		return err
	}
	if err := nginxconf.Check(p.files, mark); err != nil {
		return err
	}
	if nginxconf.NoAccessLog(p.files) {
		fmt.Fprintln(out, "       WARNING: nginx.conf has no access_log, so requests leave no lines in the log of the app")
	}
	if p, err = prepare(folder, "8080", n); err != nil {
		return err
	}
	if err := write(copied, p.files); err != nil {
		return err
	}
	said, err := exec.Command(program, "-t", "-q", "-p", copied, "-c", filepath.Join(copied, nginxconf.Main), "-g", p.global).CombinedOutput()
	if bad := (*exec.ExitError)(nil); errors.As(err, &bad) {
		return nginxconf.TestError(string(said), copied)
	}
	return err
}

// startNginx fills in the templates of the app in a folder and becomes nginx.
func startNginx(folder string, errs io.Writer) int {
	err := func() error {
		program, n, err := findNginx()
		if err != nil {
			return err
		}
		p, err := prepare(folder, os.Getenv("PORT"), n)
		if err != nil {
			return err
		}
		if err := write(folder, p.files); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(folder, "logs"), 0o755); err != nil {
			return err
		}
		args := []string{program, "-p", folder, "-c", filepath.Join(folder, nginxconf.Main)}
		if p.global != "" {
			args = append(args, "-g", p.global)
		}
		return syscall.Exec(program, args, os.Environ())
	}()
	fmt.Fprintln(errs, "cannot start nginx:", err)
	return exitFailed
}
