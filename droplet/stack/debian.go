package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/dewrun/dew/droplet/archive"
)

// DebianPackages are in every Debian stack in addition to the essential packages. The
// built-in buildpacks, certificates and SSH sessions need them.
var DebianPackages = []string{"ca-certificates", "curl", "git", "procps", "unzip", "xz-utils", "zip"}

// debianPackage matches a package name that neither apt nor mmdebstrap can mistake for
// an option.
var debianPackage = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?$`)

// maxInclude is the maximum number of additional packages.
const maxInclude = 500

func (d DebianSource) check() error {
	if len(d.Include) > maxInclude {
		return fmt.Errorf("include can list at most %d packages, not %d", maxInclude, len(d.Include))
	}
	for _, p := range d.Include {
		if !debianPackage.MatchString(p) {
			return fmt.Errorf("include: %q is not a valid name of a Debian package", p)
		}
	}
	return nil
}

// createDebian installs a Debian system of the machine's own release into a tree.
func (s *sources) createDebian(ctx context.Context, d DebianSource, say func(string)) (NewTree, error) {
	program, err := exec.LookPath("mmdebstrap")
	if err != nil {
		if s.o.NoHost {
			return NewTree{}, errors.New("the program mmdebstrap is not installed where dewd runs. Add an image instead: dew stack add debian --image docker.io/library/debian:12")
		}
		return NewTree{}, errors.New("mmdebstrap is not installed. Install it: apt install mmdebstrap")
	}
	sources, err := aptSources("/etc/apt")
	if err != nil {
		return NewTree{}, err
	}
	if err := s.o.Space(); err != nil {
		return NewTree{}, err
	}
	dir, err := os.MkdirTemp(s.o.Dir, "debian-*"+archive.Unfinished)
	if err != nil {
		return NewTree{}, fmt.Errorf("cannot create a Debian stack: %w", err)
	}
	defer s.layers.discard(dir)
	// apt downloads as another user, which needs access to the tree.
	if err := os.Chmod(dir, 0o755); err != nil {
		return NewTree{}, fmt.Errorf("cannot create a Debian stack: %w", err)
	}
	packages := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(DebianPackages), d.Include...))))
	args := []string{"--variant=minbase", "--mode=root", "--format=tar", "--include=" + strings.Join(packages, ",")}
	args = append(args, aptProxies(ctx)...)
	args = append(append(args, "", "-"), sources...)
	goruntime.LockOSThread() // see confined
	defer goruntime.UnlockOSThread()
	cmd := confined(ctx, program, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	sha, facts, done, err := s.runDebian(ctx, cmd, say)
	if err != nil {
		return NewTree{}, fmt.Errorf("cannot create a Debian stack: %w", err)
	}
	return NewTree{Tree: []string{sha}, Size: facts.Size, kind: KindDebian, source: strings.Join(packages, ","), Done: done}, nil
}

// runDebian adds the tar that mmdebstrap writes as a layer, and reports the output of
// mmdebstrap.
func (s *sources) runDebian(ctx context.Context, cmd *exec.Cmd, say func(string)) (sha string, facts layerFacts, done func(), err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", facts, nil, err
	}
	told := &progressWriter{say: say}
	cmd.Stderr = told
	if err := cmd.Start(); err != nil {
		return "", facts, nil, err
	}
	sha, facts, done, err = s.layers.add(ctx, out)
	if err != nil {
		_, _ = io.Copy(io.Discard, out) // let the program exit by itself, so that it reports its error
	}
	if werr := cmd.Wait(); werr != nil {
		if done != nil {
			done()
		}
		if cause := context.Cause(ctx); cause != nil {
			return "", facts, nil, cause
		}
		return "", facts, nil, fmt.Errorf("mmdebstrap: %w: %s", werr, told.lastLines())
	}
	return sha, facts, done, err
}

// progressWriter passes lines on, and stores the last ones.
type progressWriter struct {
	say  func(string)
	part []byte
	last []string
}

// Limits of the stored output of a program.
const (
	maxProgressLine   = 4 << 10
	keepProgressLines = 8
)

func (t *progressWriter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != '\n' && b != '\r' {
			if len(t.part) < maxProgressLine {
				t.part = append(t.part, b)
			}
			continue
		}
		if line := strings.TrimSpace(string(t.part)); line != "" {
			t.last = append(t.last, line)
			t.last = t.last[max(0, len(t.last)-keepProgressLines):]
			t.say(strings.TrimPrefix(line, "I: "))
		}
		t.part = t.part[:0]
	}
	return len(p), nil
}

// lastLines returns the last errors in the output of a failed program, or its last
// lines.
func (t *progressWriter) lastLines() string {
	var errs []string
	for _, line := range t.last {
		if strings.HasPrefix(line, "E:") {
			errs = append(errs, line)
		}
	}
	if len(errs) == 0 {
		errs = t.last
	}
	return strings.Join(errs, "; ")
}

// aptSources returns the files with the machine's package sources.
func aptSources(dir string) ([]string, error) {
	var found []string
	for _, pattern := range []string{"sources.list", "sources.list.d/*.list", "sources.list.d/*.sources"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, fmt.Errorf("cannot find the apt sources: %w", err)
		}
		for _, name := range names {
			raw, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("cannot read the apt sources: %w", err)
			}
			if hasSource(string(raw)) {
				found = append(found, name)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("this machine has no apt sources in %s: add a stack from a tar archive or an image", dir)
	}
	return found, nil
}

// hasSource reports whether a file has a source outside comments.
func hasSource(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "deb ") || strings.HasPrefix(line, "deb\t") || strings.HasPrefix(line, "URIs:") {
			return true
		}
	}
	return false
}

// aptProxies returns the options with which the machine's own apt reaches its sources.
func aptProxies(ctx context.Context) []string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire").Output()
	if err != nil {
		return nil // no special settings then
	}
	var options []string
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), " ")
		proxy := strings.HasSuffix(key, "::Proxy") || strings.Contains(key, "::Proxy::")
		if ok && proxy && strings.HasPrefix(key, "Acquire::http") && value != `"";` {
			options = append(options, "--aptopt="+lines.Text())
		}
	}
	return options
}
