package push

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
)

// ignoreFile says which files of an app's folder are not pushed.
const ignoreFile = ".cfignore"

// neverPushed are left out of every push, wherever they are, as cf leaves them
// out.
var neverPushed = []string{
	ignoreFile, ".DS_Store", ".git", ".gitignore", ".hg", ".svn", "_darcs", "manifest.yaml", "manifest.yml",
}

// ignoreRules are the lines of an ignore file in their order: the last that
// matches decides.
type ignoreRules []ignoreRule

type ignoreRule struct {
	matcher *patternmatcher.PatternMatcher
	keep    bool // the line began with !
	folders bool // the line ended with /
}

// parseIgnore reads the lines of a .cfignore, whose language is that of
// .gitignore, behind those that always hold.
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

// parseIgnoreLine turns a line into the matcher's language, in which a pattern
// always begins at the root. A line that says nothing has no matcher.
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
		line = "**/" + line // a bare name is meant at every depth
	}
	line = strings.TrimPrefix(line, "/")
	if strings.HasPrefix(line, "!") {
		line = `\` + line // the matcher would read it as its own sign
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

// ignored tells whether a path below the app's folder is left out. What is inside
// a folder that is left out cannot come back.
func (rs ignoreRules) ignored(p string, isFolder bool) bool {
	for i := range p {
		if p[i] == '/' && rs.itself(p[:i], true) {
			return true
		}
	}
	return rs.itself(p, isFolder)
}

// itself is ignored for a path whose folders are known not to be.
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
