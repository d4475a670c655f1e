package main

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The texts of Cloud Foundry that clients and users know stay in the source word for
// word.
func TestPlatformTexts(t *testing.T) {
	inSource := map[string]bool{}
	for pkg := range layers {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				addTexts(t, file, inSource)
			}
		}
	}
	texts := platformTexts(t)
	if len(texts) < 300 {
		t.Fatalf("%d texts are listed, want all", len(texts))
	}
	for _, text := range texts {
		if !inSource[text] {
			t.Errorf("%q is not in the source: it is a text of Cloud Foundry and must stay", text)
		}
	}
}

// platformTexts reads testdata/platform-texts.txt.
func platformTexts(t *testing.T) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "platform-texts.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		text, err := strconv.Unquote(lines.Text())
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		out = append(out, text)
	}
	return out
}

// addTexts adds the string literals of a Go file.
func addTexts(t *testing.T, file string, texts map[string]bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				texts[text] = true
			}
		}
		return true
	})
}
