package verdict

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// exitedZero explains a process that finished, which is a crash for an app.
func exitedZero(f Facts) (Verdict, bool) {
	if f.First.Cause != Exited || f.First.Code != 0 {
		return Verdict{}, false
	}
	return Verdict{
		Class:    Exited,
		Sentence: f.first() + " finished with exit status 0, but it must run until dew stops it",
		Evidence: []string{"the main process and every sidecar must keep running; if one exits, dew stops the instance"},
		Advice:   "Start the program in the foreground. For work that finishes, use a task: dew run-task " + cmp.Or(f.App, "APP"),
	}, true
}

// stderrLine explains an exit with the last line that the process wrote to standard
// error.
func stderrLine(f Facts) (Verdict, bool) {
	line := quote(lastLine(f.First.Stderr))
	if f.First.Cause != Exited || f.First.Code <= 0 || line == "" {
		return Verdict{}, false
	}
	return Verdict{
		Class:    Exited,
		Sentence: fmt.Sprintf("%s failed with status %d: %s", f.first(), f.First.Code, line),
		Evidence: []string{"the last line that it wrote to standard error"},
		Advice:   "To see all of its output: dew logs " + cmp.Or(f.App, "APP") + " --recent",
	}, true
}

// exited explains an exit of which only the status is known.
func exited(f Facts) (Verdict, bool) {
	if f.First.Cause != Exited || f.First.Code < 0 {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    Exited,
		Sentence: fmt.Sprintf("%s failed with status %d and printed nothing", f.first(), f.First.Code),
		Advice:   "To see what happened before: dew logs " + cmp.Or(f.App, "APP") + " --recent",
	}
	if line := quote(lastLine(f.First.Stdout)); line != "" {
		v.Sentence = fmt.Sprintf("%s failed with status %d; its last line: %s", f.first(), f.First.Code, line)
		v.Evidence = []string{"it wrote nothing to standard error"}
	}
	return v, true
}

// statusText is the exit status of the first process as evidence.
func statusText(f Facts) string {
	return fmt.Sprintf("%s exited with status %d", f.first(), f.First.Code)
}

// findLine returns the newest line that matches, and the match.
func findLine(lines []string, re *regexp.Regexp) (line string, match []string) {
	for i := len(lines) - 1; i >= 0; i-- {
		s := strings.TrimSpace(lines[i])
		if m := re.FindStringSubmatch(s); m != nil {
			return s, m
		}
	}
	return "", nil
}

// hasPrefix reports whether s starts with one of the prefixes.
func hasPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
