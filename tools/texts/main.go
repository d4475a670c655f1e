// Texts writes the comments and the messages of Go source files as plain text, so that
// a prose linter can check them. Each text keeps its line: line 7 of comments/a/b.go.txt
// is the comment on line 7 of a/b.go.
package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: texts SOURCE OUTPUT")
		os.Exit(2)
	}
	if err := extract(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// extract reads all Go files below source and writes their texts below out.
func extract(source, out string) error {
	fixed, err := fixedTexts(filepath.Join(source, "cmd", "dewd", "testdata", "platform-texts.txt"))
	if err != nil {
		return err
	}
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != source && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		name, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		comments, messages, err := texts(path, fixed)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(out, "comments", name+".txt"), comments); err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			return nil // the strings of tests are data
		}
		return write(filepath.Join(out, "messages", name+".txt"), messages)
	})
}

// fixedTexts reads the texts of Cloud Foundry, which dew must not change.
func fixedTexts(path string) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fixed := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if text, err := strconv.Unquote(lines.Text()); err == nil {
			fixed[text] = true
		}
	}
	return fixed, lines.Err()
}

// page is text by line, from 1.
type page map[int]string

func (p page) add(line int, text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	if p[line] != "" {
		text = p[line] + " | " + text
	}
	p[line] = text
}

// texts returns the comments and the messages of one file.
func texts(path string, fixed map[string]bool) (comments, messages page, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	comments, messages = page{}, page{}
	if ast.IsGenerated(file) {
		return comments, messages, nil
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			addComment(comments, fset.Position(c.Pos()).Line, c.Text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && !fixed[text] && isProse(text) {
				addMessage(messages, fset.Position(n.Pos()).Line, n.Value, text)
			}
		}
		return true
	})
	return comments, messages, nil
}

// directive matches comments for tools, such as //go:build and //nolint.
var directive = regexp.MustCompile(`^//(go:|nolint|line )`)

// addComment adds the lines of a comment. Indented lines are code.
func addComment(p page, line int, text string) {
	if directive.MatchString(text) {
		return
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "/*"), "*/")
	for i, one := range strings.Split(text, "\n") {
		one = strings.TrimPrefix(one, "//")
		if !strings.HasPrefix(one, "\t") && !strings.HasPrefix(one, "  ") {
			p.add(line+i, one)
		}
	}
}

// verb matches the verbs of fmt, which stand for values.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9*]+)?[a-zA-Z]`)

// addMessage adds a string. A raw string spans the lines it has in the source.
func addMessage(p page, line int, literal, text string) {
	text = verb.ReplaceAllString(text, "X")
	if !strings.HasPrefix(literal, "`") {
		p.add(line, strings.ReplaceAll(text, "\n", " | "))
		return
	}
	for i, one := range strings.Split(text, "\n") {
		p.add(line+i, one)
	}
}

// word matches an ordinary word.
var word = regexp.MustCompile(`(^|\s)["'(]?[A-Za-z][a-z']*[.,:;)"']*($|\s)`)

// isProse reports whether a string is a sentence or a part of one, not a name or code.
func isProse(text string) bool {
	count := 0
	for _, one := range strings.Fields(text) {
		if word.MatchString(one) {
			count++
		}
	}
	return count >= 2
}

// write writes a page with one line for each line of the source up to the last text.
func write(path string, p page) error {
	if len(p) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	last := 0
	for line := range p {
		last = max(last, line)
	}
	var b strings.Builder
	for line := 1; line <= last; line++ {
		b.WriteString(p[line] + "\n")
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
