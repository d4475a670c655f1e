package api

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/access"
)

// who maps each permission to its name in docs/api.md.
var who = map[access.Need]string{
	access.Public: "anyone", access.Authenticated: "any token", access.Read: "readers", access.ReadEnv: "readers of variables",
	access.ReadRoute: "readers, org auditors", access.ReadQuota: "org managers, readers where it applies", access.Download: "readers except supporters",
	access.ReadSecrets: "readers of secrets", access.Support: "supporters", access.Develop: "developers", access.Manage: "managers",
	access.ManageOrg: "org managers", access.ReadAll: "readers of all", access.Administer: "administrators",
}

// docs/api.md lists every endpoint and the roles that can call it.
func TestCoverage(t *testing.T) {
	file := filepath.Join("..", "docs", "api.md")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "-update -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(b), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the endpoints, between %q and %q", file, begin, end)
	}
	want := coverage(t)
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not what there is (-want +got); go test ./api -run TestCoverage -update writes it\n%s", file, diff)
	}
}

// coverage returns a table of endpoints for each kind of resource.
func coverage(t *testing.T) string {
	t.Helper()
	kinds := map[string][]string{}
	for pattern := range rights {
		if pattern == "/" {
			continue
		}
		kinds[kindOf(pattern)] = append(kinds[kindOf(pattern)], pattern)
	}
	var out strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&out, "\n## %s\n\n| | |\n|---|---|\n", kind)
		slices.SortFunc(kinds[kind], func(a, b string) int { return strings.Compare(byPath(a), byPath(b)) })
		for _, pattern := range kinds[kind] {
			r := rights[pattern]
			text := who[r.Needs]
			if text == "" {
				t.Errorf("%s: nobody knows who may ask it", pattern)
			}
			if r.Open {
				text += "; without one, only those that all orgs can use"
			}
			if r.Local {
				text += ", only over the socket"
			}
			fmt.Fprintf(&out, "| `%s` | %s |\n", strings.TrimSuffix(pattern, "{$}"), text)
		}
	}
	return out.String() + "\n"
}

// kindOf returns the kind of resource of an endpoint: the first part of its path after
// the version.
func kindOf(pattern string) string {
	_, path, _ := strings.Cut(pattern, " ")
	for _, server := range []struct{ prefix, name string }{
		{"/v3/", ""}, {"/dew/v1/", "dew's own"}, {"/api/v1/", "log-cache"}, {"/stream/v1/", "streams"}, {"/v2/read", "log stream gateway"}, {"/routing/v1/", "router groups"}, {"/", "the daemon"},
	} {
		if rest, ok := strings.CutPrefix(path, server.prefix); ok {
			word, _, _ := strings.Cut(rest, "/")
			if server.name != "" {
				return server.name
			}
			return strings.ReplaceAll(word, "_", " ")
		}
	}
	return pattern
}

// byPath returns a sort key: by path, then by method.
func byPath(pattern string) string {
	method, path, _ := strings.Cut(pattern, " ")
	return path + " " + method
}
