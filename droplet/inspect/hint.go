package inspect

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// maxExamined is the maximum number of files that are examined for the hint.
const maxExamined = 20_000

// pushedFile is a file of a package that no buildpack detects.
type pushedFile struct {
	name string // path in the app, such as src/main.go
	elf  bool   // it is a Linux program
}

// Hint returns what to add to an app that no buildpack detects. All files of the package
// are in the folder top.
func Hint(bits io.ReadSeeker, top string) (string, error) {
	var files []pushedFile
	err := each(bits, top, func(name string, h *tar.Header, tr io.Reader) bool {
		if h.Typeflag != tar.TypeReg || strings.HasPrefix(name, ".") {
			return true
		}
		f := pushedFile{name: name}
		if h.Mode&0o111 != 0 && !strings.Contains(name, "/") {
			var magic [4]byte
			_, err := io.ReadFull(tr, magic[:])
			f.elf = err == nil && bytes.Equal(magic[:], []byte("\x7fELF"))
		}
		files = append(files, f)
		return len(files) < maxExamined
	})
	return missingHint(files), err
}

// Has reports whether a package has a file.
func Has(bits io.ReadSeeker, top, file string) (found bool, err error) {
	err = each(bits, top, func(name string, _ *tar.Header, _ io.Reader) bool {
		found = name == file
		return !found
	})
	return found, err
}

// each calls fn for the files of a package, until it returns false.
func each(bits io.ReadSeeker, top string, fn func(name string, h *tar.Header, content io.Reader) bool) error {
	if _, err := bits.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("cannot read package: %w", err)
	}
	for tr := tar.NewReader(bits); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read package: %w", err)
		}
		if !fn(strings.TrimPrefix(h.Name, top+"/"), h, tr) {
			return nil
		}
	}
}

const (
	binaryBuildpack = "binary_buildpack"
	procfileName    = "Procfile"
)

// runAsIsHint is the hint for files that need no buildpack.
const runAsIsHint = "To run the files as they are, set `buildpacks: [" + binaryBuildpack + "]`"

// missingHint returns what an app lacks for a buildpack to detect it.
func missingHint(files []pushedFile) string {
	top := topLevel(files)
	for _, hint := range []func([]pushedFile) string{sourceHint, javaHint, programHint} {
		if text := hint(top); text != "" {
			return text
		}
	}
	if text := folderHint(files); text != "" {
		return text
	}
	return "Found no go.mod, package.json, requirements.txt, Gemfile, Staticfile, index.html, nginx.conf, PHP file or jar. " + runAsIsHint
}

func topLevel(files []pushedFile) (top []pushedFile) {
	for _, f := range files {
		if !strings.Contains(f.name, "/") {
			top = append(top, f)
		}
	}
	return top
}

// languages are those whose sources need a file with their dependencies, in this order.
var languages = []struct {
	ext   string
	first []string // the files that most likely start the app
	add   string   // %[1]s is the name of the file
}{
	{".go", []string{"main.go"}, "Found %[1]s, but no go.mod. Run: go mod init app"},
	{".py", []string{"app.py", "main.py", "server.py", "wsgi.py"}, "Found %[1]s, but no requirements.txt. Add requirements.txt (it can be empty) and a Procfile with the line `web: python3 %[1]s`"},
	{".rb", []string{"app.rb", "main.rb", "server.rb"}, "Found %[1]s, but no Gemfile. Add a Gemfile (it can be empty) and a Procfile with the line `web: ruby %[1]s`"},
	{".js", []string{"server.js", "app.js", "index.js", "main.js"}, "Found %[1]s, but no package.json. Add package.json with the content `{\"scripts\": {\"start\": \"node %[1]s\"}}`"},
}

// sourceHint returns a hint for sources without a file that lists their dependencies.
func sourceHint(top []pushedFile) string {
	for _, l := range languages {
		var found []string
		for _, f := range top {
			if path.Ext(f.name) == l.ext && !strings.HasSuffix(f.name, "_test.go") {
				found = append(found, f.name)
			}
		}
		if len(found) == 0 {
			continue
		}
		name := found[0]
		for _, likely := range l.first {
			if slices.Contains(found, likely) {
				name = likely
				break
			}
		}
		hint := fmt.Sprintf(l.add, name)
		if has(top, "index.html") {
			hint += ". To serve the files as they are, add an empty Staticfile"
		}
		return hint
	}
	return ""
}

// javaHint returns a hint for Java code that is not built.
func javaHint(top []pushedFile) string {
	for _, build := range []struct{ file, command, jar string }{
		{"pom.xml", "mvn package", "target/NAME.jar"},
		{"build.gradle", "gradle build", "build/libs/NAME.jar"},
		{"build.gradle.kts", "gradle build", "build/libs/NAME.jar"},
	} {
		if has(top, build.file) {
			return fmt.Sprintf("Found %s, but no jar. Build it first (%s), then push the jar: dew push NAME -p %s", build.file, build.command, build.jar)
		}
	}
	for _, f := range top {
		if class, ok := strings.CutSuffix(f.name, ".java"); ok {
			return fmt.Sprintf("Found %[1]s.java, but no jar. Build one first (javac -d classes *.java && jar -c -f app.jar -e %[1]s -C classes .), "+
				"then push it: dew push NAME -p app.jar", class)
		}
	}
	for _, f := range top {
		if path.Ext(f.name) == ".war" {
			return fmt.Sprintf("Found %[1]s. To run it in Tomcat, push the file itself: dew push NAME -p %[1]s", f.name)
		}
		if path.Ext(f.name) == ".jar" {
			return fmt.Sprintf("Found %[1]s, but its manifest has no Main-Class. Build it with one, or set `command: java -cp %[1]s CLASS` and `buildpacks: [%[2]s]`", f.name, binaryBuildpack)
		}
	}
	return ""
}

// programHint returns a hint for files that need no buildpack, and for Dockerfiles.
func programHint(top []pushedFile) string {
	for _, f := range top {
		if f.elf {
			return fmt.Sprintf("Found the program %[1]s. %[2]s and `command: ./%[1]s`", f.name, runAsIsHint)
		}
	}
	switch {
	case has(top, procfileName):
		return "Found a Procfile, but no file that shows the programming language. " + runAsIsHint
	case has(top, "Dockerfile"):
		return "Found a Dockerfile. dew runs images, but does not build them: build the image, push it to a registry, then run dew push NAME -o IMAGE"
	}
	return ""
}

// markers are the files by which buildpacks detect an app.
var markers = []string{"go.mod", "package.json", "requirements.txt", "pyproject.toml", "Gemfile", "Staticfile", "composer.json", "index.php", "nginx.conf", "index.html"}

// folderHint returns a hint for an app that is in a subfolder.
func folderHint(files []pushedFile) string {
	for _, marker := range markers {
		for _, f := range files {
			if dir, name := path.Split(f.name); name == marker && strings.Count(f.name, "/") == 1 {
				return fmt.Sprintf("Found %s. To push that folder, add -p %s to the command or set `path: %[2]s`", f.name, strings.TrimSuffix(dir, "/"))
			}
		}
	}
	return ""
}

func has(files []pushedFile, name string) bool {
	return slices.ContainsFunc(files, func(f pushedFile) bool { return f.name == name })
}
