package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bounds are the size limits of a package or a type. Tests and generated files do not
// count.
type bounds struct{ files, lines, methods int }

// ordinary are the limits of every package and type without an exception.
var ordinary = bounds{files: 25, lines: 4000, methods: 40}

// exception is a package or a type with its own limits. Zero stands for the ordinary
// limit.
type exception struct {
	bounds
	why string
}

// exceptions are listed by package, or by package and type. An exception that is no
// longer needed fails the test.
var exceptions = map[string]exception{
	"api/v3": {bounds{files: 44}, "one small file for the JSON of each resource"},

	"auth":     {bounds{lines: 4809}, "the OAuth server uses unexported parts of users, clients and tokens"},
	"notify":   {bounds{lines: 4029}, "the two versions of the API share their records, permissions and errors"},
	"registry": {bounds{lines: 4960}, "the subjects share their writes in one transaction"},

	"app": {bounds{lines: 4110}, "the keys of the manifest use unexported parts of the decoder and of the values"},

	"droplet": {bounds{lines: 4210}, "staging uses unexported parts of packages, buildpacks and droplets"},

	"logstream":     {bounds{lines: 4900}, "readers and the writer share the unexported format of segments"},
	"logstream.Log": {bounds{methods: 62}, "reading, writing, retention and recovery share one lock over one list of segments"},

	"runtime/supervisor.Slot": {bounds{methods: 45}, "the steps of one loop; its orders, view, checks and log are types of their own"},
}

// Packages and types stay small enough to read.
func TestBounds(t *testing.T) {
	sizes := sizesOf(t, filepath.Join("..", ".."))
	if len(sizes) < 50 {
		t.Fatalf("%d packages and types found, want all", len(sizes))
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		for _, breach := range oversize(name, sizes[name]) {
			t.Error(breach)
		}
	}
	for name, e := range exceptions {
		size, ok := sizes[name]
		if !ok || e.files > 0 && size.files <= ordinary.files || e.lines > 0 && size.lines <= ordinary.lines ||
			e.methods > 0 && size.methods <= ordinary.methods || e.why == "" {
			t.Errorf("the exception of %s is not needed: it has %+v", name, size)
		}
	}
}

// oversize returns the limits that a package or a type exceeds.
func oversize(name string, size bounds) []string {
	var out []string
	limit := exceptions[name].bounds
	for _, one := range []struct {
		what             string
		has, most, usual int
	}{
		{"files", size.files, limit.files, ordinary.files},
		{"lines", size.lines, limit.lines, ordinary.lines},
		{"methods", size.methods, limit.methods, ordinary.methods},
	} {
		if most := max(one.most, one.usual); one.has > most {
			out = append(out, fmt.Sprintf("%s has %d %s, more than %d: cut it, or say in exceptions why not", name, one.has, one.what, most))
		}
	}
	return out
}

func TestOversize(t *testing.T) {
	most := exceptions["api/v3"].files
	for name, tt := range map[string]struct {
		pkg  string
		size bounds
		want int
	}{
		"small":                 {"store", bounds{25, 4000, 40}, 0},
		"too many files":        {"store", bounds{26, 10, 0}, 1},
		"too long":              {"store", bounds{1, 4001, 0}, 1},
		"too many methods":      {"store.DB", bounds{methods: 41}, 1},
		"an exception":          {"api/v3", bounds{files: most}, 0},
		"beyond an exception":   {"api/v3", bounds{files: most + 1}, 1},
		"an exception of files": {"api/v3", bounds{files: most, lines: 4001}, 1},
	} {
		if got := oversize(tt.pkg, tt.size); len(got) != tt.want {
			t.Errorf("%s: %v, want %d", name, got, tt.want)
		}
	}
}

// sizesOf counts the files and lines of every package below root, and the methods of
// every type.
func sizesOf(t *testing.T, root string) map[string]bounds {
	t.Helper()
	sizes := map[string]bounds{}
	for pkg := range layers {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				addSizes(t, pkg, file, sizes)
			}
		}
	}
	return sizes
}

func addSizes(t *testing.T, pkg, file string, sizes map[string]bounds) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(parsed) {
		return
	}
	size := sizes[pkg]
	size.files++
	size.lines += bytes.Count(text, []byte("\n"))
	sizes[pkg] = size
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
			name := pkg + "." + receiver(fn.Recv.List[0].Type)
			size := sizes[name]
			size.methods++
			sizes[name] = size
		}
	}
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
