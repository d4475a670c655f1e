package platform

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// isScope matches the name of a scope.
var isScope = regexp.MustCompile(`^[a-z]+(_[a-z]+)*[._][a-z_]+$`)

// checksScope are the functions that check a scope of a caller.
var checksScope = []string{"permitted", "requireScope", "Has", "hasScope", "HasAny"}

// notChecked are scopes that dew gives to clients and users and never checks. They are
// known words, so there is no warning about them.
var notChecked = []string{"clients.secret", "uaa.none"}

// The list of scopes has exactly those that the authorization server, the notification
// service and the API check.
func TestUsedScopes(t *testing.T) {
	found := map[string]string{}
	for _, dir := range []string{"auth", "notify", "api"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, e := range scopeExpressions(n) {
					if s, ok := e.(*ast.BasicLit); ok && s.Kind == token.STRING {
						if text, err := strconv.Unquote(s.Value); err == nil && isScope.MatchString(text) && !isParameter(n, text) {
							found[text] = path
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 15 {
		t.Fatalf("scopes found = %v, want all", slices.Sorted(maps.Keys(found)))
	}
	for scope, path := range found {
		if !slices.Contains(usedScopes, scope) {
			t.Errorf("%s checks the scope %s: add it to usedScopes", path, scope)
		}
	}
	for _, scope := range usedScopes {
		if found[scope] == "" && !slices.Contains(notChecked, scope) {
			t.Errorf("usedScopes has %s, but nothing checks it", scope)
		}
	}
}

// scopeExpressions returns the expressions of a node that are scopes: the arguments of a
// check, constants with a name like ScopeWrite, and the other spellings of scopes.
func scopeExpressions(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		if slices.Contains(checksScope, nameOf(n.Fun)) {
			return n.Args
		}
	case *ast.ValueSpec:
		name := strings.ToLower(n.Names[0].Name)
		if !strings.HasPrefix(name, "scope") {
			return nil
		}
		out := n.Values
		for _, v := range n.Values {
			if list, ok := v.(*ast.CompositeLit); ok {
				for _, e := range list.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						e = kv.Value
					}
					out = append(out, e)
				}
			}
		}
		return out
	}
	return nil
}

// isParameter reports whether a text is the name of a query parameter: url.Values has a
// method Has as well. Scopes that are checked have a dot.
func isParameter(n ast.Node, text string) bool {
	_, call := n.(*ast.CallExpr)
	return call && !strings.Contains(text, ".")
}

// nameOf returns the last name of a function.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
