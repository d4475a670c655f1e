package push

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
)

// ignoreFile lists the files of an app's folder that are not pushed.
const ignoreFile = ".cfignore"

// neverPushed are the names that a push always ignores in all folders, as in cf.
var neverPushed = []string{
	ignoreFile, ".DS_Store", ".git", ".gitignore", ".hg", ".svn", "_darcs", "manifest.yaml", "manifest.yml",
}

// ignoreRules are the lines of an ignore file in order. The last match decides.
type ignoreRules []ignoreRule

type ignoreRule struct {
	matcher *patternmatcher.PatternMatcher
	keep    bool // the line starts with !
	folders bool // the line ends with /
}

// parseIgnore reads a .cfignore, which has the syntax of .gitignore, and adds its rules
// after those of neverPushed.
func parseIgnore(text string) (ignoreRules, error) {
	var rules ignoreRules
	for _, line := range append(append([]string{}, neverPushed...), strings.Split(text, "\n")...) {
		r, err := parseIgnoreLine(strings.TrimSuffix(line, "\r"))
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: the line %q is not a pattern: %w", ignoreFile, line, err)
		}
		if r.matcher != nil {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// parseIgnoreLine converts a line into a pattern of the matcher, which always starts at
// the root. An empty line or a comment has no matcher.
func parseIgnoreLine(line string) (ignoreRule, error) {
	var r ignoreRule
	line = strings.TrimRight(line, " \t")
	if line == "" || line[0] == '#' {
		return r, nil
	}
	line, r.keep = strings.CutPrefix(line, "!")
	r.folders = strings.HasSuffix(line, "/")
	line = strings.TrimRight(line, "/")
	if strings.Trim(line, "/") == "" {
		return r, nil
	}
	if !strings.Contains(line, "/") {
		line = "**/" + line // a name without a slash matches in all folders
	}
	line = strings.TrimPrefix(line, "/")
	if strings.HasPrefix(line, "!") {
		line = `\` + line // otherwise it negates the pattern
	}
	m, err := patternmatcher.New([]string{line})
	if err != nil {
		return r, err
	}
	if _, err := m.MatchesOrParentMatches("a"); err != nil {
		return r, err
	}
	r.matcher = m
	return r, nil
}

// ignored reports whether a path below the app's folder is ignored. All files in an
// ignored folder are ignored.
func (rs ignoreRules) ignored(p string, isFolder bool) bool {
	for i := range p {
		if p[i] == '/' && rs.itself(p[:i], true) {
			return true
		}
	}
	return rs.itself(p, isFolder)
}

// itself is ignored for a path whose parent folders are not ignored.
func (rs ignoreRules) itself(p string, isFolder bool) bool {
	for _, r := range slices.Backward(rs) {
		if r.folders && !isFolder {
			continue
		}
		if hit, err := r.matcher.MatchesOrParentMatches(p); err == nil && hit {
			return !r.keep
		}
	}
	return false
}
