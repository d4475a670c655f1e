package verdict

import (
	"fmt"
	"regexp"
	"strings"
)

// program explains an exit with an error line that a language runtime printed.
func (f Facts) program(line, runtime, advice string) Verdict {
	return Verdict{
		Class:    Exited,
		Sentence: fmt.Sprintf("%s failed with status %d: %s", f.first(), f.First.Code, quote(line)),
		Evidence: []string{runtime},
		Advice:   advice,
	}
}

func (f Facts) ownExit() bool { return f.First.Cause == Exited && f.First.Code > 0 }

var (
	goError     = regexp.MustCompile(`^(panic: .+|fatal error: .+)`)
	pythonLine  = regexp.MustCompile(`^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|DoesNotExist)|ImproperlyConfigured|[\w.]+\.[A-Z]\w+)(: .*)?$`)
	nodeLine    = regexp.MustCompile(`^(?:Uncaught )?((?:[A-Z]\w*)?Error(?: \[[A-Z_]+\])?: .+)`)
	javaThread  = regexp.MustCompile(`^Exception in thread "[^"]*" (.+)`)
	javaCause   = regexp.MustCompile(`^Caused by: (.+)`)
	rubyLine    = regexp.MustCompile("^\\S+:\\d+:in [`'].+': (.+ \\(\\S+\\))")
	addrInUse   = regexp.MustCompile(`(?i)EADDRINUSE|address already in use`)
	portInLine  = regexp.MustCompile(`:(\d{2,5})\b`)
	nodeMissing = regexp.MustCompile(`Cannot find module '([^']+)'`)
	pyMissing   = regexp.MustCompile(`^ModuleNotFoundError: No module named '([^']+)'`)
)

// portInUse explains a process whose port another process of the instance has.
func portInUse(f Facts) (Verdict, bool) {
	line, m := findLine(f.First.Stderr, addrInUse)
	if !f.ownExit() || m == nil {
		return Verdict{}, false
	}
	port := "its port"
	if m := portInLine.FindStringSubmatch(line); m != nil {
		port = "port " + m[1]
	}
	return Verdict{
		Class:    Exited,
		Sentence: fmt.Sprintf("%s failed with status %d: %s is already in use in the instance", f.first(), f.First.Code, port),
		Evidence: []string{quote(line)},
		Advice:   "The process and its sidecars share one network: give each of them a port of its own",
	}, true
}

// goPanic explains a Go program that panicked.
func goPanic(f Facts) (Verdict, bool) {
	if !f.ownExit() || f.First.Code != 2 {
		return Verdict{}, false
	}
	for _, l := range f.First.Stderr { // the first one is the cause
		if m := goError.FindStringSubmatch(strings.TrimSpace(l)); m != nil {
			return f.program(m[1], "a Go program exits with status 2 after a panic", "Fix the panic. The lines after it show where it happened: dew logs "+f.App+" --recent"), true
		}
	}
	return Verdict{}, false
}

// pythonError explains a Python program that ended with an exception.
func pythonError(f Facts) (Verdict, bool) {
	if !f.ownExit() || !contains(f.First.Stderr, "Traceback (most recent call last):") {
		return Verdict{}, false
	}
	line, m := findLine(f.First.Stderr, pythonLine)
	if m == nil {
		return Verdict{}, false
	}
	advice := "The lines before it show where it happened: dew logs " + f.App + " --recent"
	switch {
	case pyMissing.MatchString(line):
		advice = fmt.Sprintf("Add the package of module %s to requirements.txt, and push again", pyMissing.FindStringSubmatch(line)[1])
	case strings.HasPrefix(line, "KeyError: '") && contains(f.First.Stderr, "os.environ"):
		advice = f.setVariable(strings.Trim(strings.TrimPrefix(line, "KeyError: "), "'"))
	}
	return f.program(line, "the last line of the Python traceback", advice), true
}

// setVariable is the advice to set an environment variable.
func (f Facts) setVariable(name string) string {
	return fmt.Sprintf("Set the environment variable: dew set-env %s %s VALUE, then dew restart %s. If a service should set it, bind the service", f.App, quote(name), f.App)
}

// nodeError explains a Node.js program that ended with an error that it did not catch.
func nodeError(f Facts) (Verdict, bool) {
	if !f.ownExit() || !containsPrefix(f.First.Stderr, "Node.js v") && !contains(f.First.Stderr, "at node:internal") && !contains(f.First.Stderr, "node:internal/") {
		return Verdict{}, false
	}
	for _, l := range f.First.Stderr {
		m := nodeLine.FindStringSubmatch(strings.TrimSpace(l))
		if m == nil {
			continue
		}
		advice := "The lines after it show where it happened: dew logs " + f.App + " --recent"
		if mod := nodeMissing.FindStringSubmatch(m[1]); mod != nil {
			advice = fmt.Sprintf("Add %s to the dependencies in package.json, and push again", mod[1])
			if strings.HasPrefix(mod[1], "/") || strings.HasPrefix(mod[1], ".") {
				advice = "Check the file name in the start command: the file does not exist in the app"
			}
		}
		return f.program(m[1], "the error that Node.js printed", advice), true
	}
	return Verdict{}, false
}

// javaError explains a JVM whose main thread ended with an exception.
func javaError(f Facts) (Verdict, bool) {
	if !f.ownExit() {
		return Verdict{}, false
	}
	_, m := findLine(f.First.lines(), javaThread)
	if m == nil {
		return Verdict{}, false
	}
	line := m[1]
	if _, c := findLine(f.First.lines(), javaCause); c != nil { // the last cause is the first to have happened
		line = c[1]
	}
	return f.program(line, "the exception that the JVM printed", "The lines after it show where it happened: dew logs "+f.App+" --recent"), true
}

// rubyError explains a Ruby program that ended with an exception.
func rubyError(f Facts) (Verdict, bool) {
	if !f.ownExit() {
		return Verdict{}, false
	}
	for _, l := range f.First.Stderr {
		if m := rubyLine.FindStringSubmatch(strings.TrimSpace(l)); m != nil {
			return f.program(m[1], "the error that Ruby printed", "The lines after it show where it happened: dew logs "+f.App+" --recent"), true
		}
	}
	return Verdict{}, false
}

func contains(lines []string, part string) bool {
	for _, l := range lines {
		if strings.Contains(l, part) {
			return true
		}
	}
	return false
}

func containsPrefix(lines []string, prefix string) bool {
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			return true
		}
	}
	return false
}
