package versions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// languages are the names that Read and Check accept, with the names for messages.
var languages = map[string]struct {
	title string
	read  func(a App) []Hint
}{
	"go":     {"Go", readGo},
	"java":   {"Java", readJava},
	"nginx":  {"nginx", readNginx},
	"node":   {"Node.js", readNode},
	"php":    {"PHP", readPHP},
	"python": {"Python", readPython},
	"ruby":   {"Ruby", readRuby},
	"tomcat": {"Tomcat", readTomcat},
}

// App is where hints are found.
type App struct {
	Files fs.FS
	Env   func(name string) string // variables of the app
}

// Hint is a version that an app asks for.
type Hint struct {
	Where string // such as "package.json line 3"
	Text  string // as the app has it
	// Must is set if the app cannot be staged with another version.
	Must bool
	// Suggest is text with the version %s that could replace the hint, or empty.
	Suggest string

	accepts    accepter
	strictFrom *semver.Version // first version for which Must holds, or nil
	err        error           // why the hint cannot be understood
}

// Read returns the hints of an app for a language. The first one has precedence, and
// the others are those that Cloud Foundry ignores.
func Read(language string, a App) ([]Hint, error) {
	l, ok := languages[language]
	if !ok {
		return nil, fmt.Errorf("unknown language %q", language)
	}
	return l.read(a), nil
}

// Title returns the name of a language for messages.
func Title(language string) string { return languages[language].title }

// maxFile is far more than a file with a hint needs. A lock file is not read.
const maxFile = 1 << 20

// errTooLarge is the reason why a file is not read.
var errTooLarge = errors.New("the file is larger than 1 MiB")

// read returns the text of a file, and whether the app has it.
func (a App) read(name string) (text string, ok bool, err error) {
	f, err := a.Files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", true, plainError(err)
	}
	defer func() { _ = f.Close() }() // only read
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", true, plainError(err)
	}
	if len(raw) > maxFile {
		return "", true, errTooLarge
	}
	return strings.TrimPrefix(string(raw), "\xef\xbb\xbf"), true, nil
}

// plainError removes the operation and the path from an error: the hint has them.
func plainError(err error) error {
	if bad := (*fs.PathError)(nil); errors.As(err, &bad) {
		return bad.Err
	}
	return err
}

// unreadable returns the hint of a file that cannot be read.
func unreadable(where string, err error) Hint { return Hint{Where: where, err: err} }

// firstLine returns the first line of a file that is neither empty nor a comment, and
// its number.
func firstLine(text string) (line string, number int) {
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			return line, number
		}
	}
	return "", 0
}

// lineFile returns the hint of a file that has only a version, or nothing if the app
// has no such file.
func lineFile(a App, name string, accept func(text string) (accepter, error)) []Hint {
	text, ok, err := a.read(name)
	if !ok {
		return nil
	}
	if err != nil {
		return []Hint{unreadable(name, err)}
	}
	line, number := firstLine(text)
	if line == "" {
		return []Hint{unreadable(name, errors.New("the file is empty"))}
	}
	h := Hint{Where: at(name, number), Text: line}
	h.accepts, h.err = accept(line)
	return []Hint{h}
}

func at(file string, line int) string { return fmt.Sprintf("%s line %d", file, line) }
