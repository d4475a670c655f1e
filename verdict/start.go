package verdict

import (
	"fmt"
	"regexp"
	"strings"
)

// Exit statuses of shells and of the programs that start commands.
const (
	statusNotExecutable = 126
	statusNotFound      = 127
)

// couldNotStart reports whether the first process exited before it was healthy. Later,
// these statuses come from a command that the app itself tried to run.
func (f Facts) couldNotStart() bool { return f.Starting || f.First.Cause == StartFailed }

// loaderError is the line of the dynamic loader about a missing library.
var loaderError = regexp.MustCompile(`^(.+?): error while loading shared libraries: (\S+): cannot open shared object file`)

// packages are the Debian packages of libraries that apps often miss.
var packages = map[string]string{
	"libcrypt.so.1": "libcrypt1", "libssl.so.3": "libssl3", "libcrypto.so.3": "libssl3",
	"libpq.so.5": "libpq5", "libmariadb.so.3": "libmariadb3", "libsqlite3.so.0": "libsqlite3-0",
	"libcurl.so.4": "libcurl4", "libxml2.so.2": "libxml2", "libyaml-0.so.2": "libyaml-0-2",
	"libz.so.1": "zlib1g", "libstdc++.so.6": "libstdc++6", "libgcc_s.so.1": "libgcc-s1",
	"libgomp.so.1": "libgomp1", "libffi.so.8": "libffi8", "libicuuc.so.72": "libicu72",
	"libreadline.so.8": "libreadline8", "libfontconfig.so.1": "libfontconfig1", "libgl.so.1": "libgl1", "libGL.so.1": "libgl1",
	"libglib-2.0.so.0": "libglib2.0-0", "libuuid.so.1": "libuuid1", "libonig.so.5": "libonig5",
}

// missingLibrary explains a program whose shared library is missing.
func missingLibrary(f Facts) (Verdict, bool) {
	if f.First.Code != statusNotFound || !f.couldNotStart() {
		return Verdict{}, false
	}
	line, m := findLine(f.First.Stderr, loaderError)
	if m == nil {
		return Verdict{}, false
	}
	program, library := m[1], m[2]
	v := Verdict{
		Class:    StartFailed,
		Sentence: fmt.Sprintf("%s could not start: %s is missing", quote(program), quote(library)),
		Evidence: []string{quote(line)},
		Advice:   "To find the package that contains it: apt-file search " + quote(library),
	}
	if f.Stack != "" {
		v.Sentence += " in stack " + f.Stack
	}
	if p := packages[library]; p != "" {
		v.Advice = "Install package " + p + " in the stack"
		if f.Stack == hostStack {
			v.Advice = "Install it: apt install " + p
		}
	}
	return v, true
}

// hostStack is the stack that uses the programs of the machine.
const hostStack = "host"

// notExecutable explains a start command that the shell found and could not execute.
func notExecutable(f Facts) (Verdict, bool) {
	if f.First.Code != statusNotExecutable || !f.couldNotStart() {
		return Verdict{}, false
	}
	line := lastLine(f.First.Stderr)
	v := Verdict{
		Class:    StartFailed,
		Sentence: f.first() + " could not start: its command cannot be executed",
		Evidence: []string{statusText(f)},
		Advice:   "Make the file executable before you push it (chmod +x), and check that it was built for this machine",
	}
	switch {
	case line == "":
	case strings.Contains(line, "xec format error"):
		v.Sentence = fmt.Sprintf("%s could not start: its program was built for another kind of machine, or is not a program", f.first())
		v.Evidence = append([]string{quote(line)}, v.Evidence...)
		v.Advice = "Build the program for Linux on this machine's processor, or start a script with its interpreter (for example: sh start.sh)"
	case strings.Contains(line, "ermission denied"):
		v.Sentence = f.first() + " could not start: " + quote(line)
		v.Advice = "Make the file executable before you push it: chmod +x FILE"
	default:
		v.Sentence = f.first() + " could not start: " + quote(line)
	}
	return v, true
}

// commandNotFound explains a command that the shell did not find.
func commandNotFound(f Facts) (Verdict, bool) {
	if f.First.Code != statusNotFound || !f.couldNotStart() {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    StartFailed,
		Sentence: f.first() + " could not start: a command was not found",
		Evidence: []string{statusText(f)},
		Advice:   "Check `command` in the manifest" + sidecarPart(f) + ", and that the program is in the app or in its stack",
	}
	if line, m := findLine(f.First.Stderr, shellNotFound); m != nil {
		name := m[1] + m[2]
		v.Sentence = fmt.Sprintf("%s could not start: command %s was not found", f.first(), quote(name))
		v.Evidence = append([]string{quote(line)}, v.Evidence...)
	}
	if f.First.Command != "" {
		v.Evidence = append(v.Evidence, "start command: "+quote(f.First.Command))
	}
	return v, true
}

func sidecarPart(f Facts) string {
	if f.First.Sidecar == "" {
		return ""
	}
	return " of sidecar " + f.First.Sidecar
}

// shellNotFound is the line of sh or bash about a command that does not exist.
var shellNotFound = regexp.MustCompile(`(?:^|: )(?:line )?\d+: (?:exec: )?(\S+): (?:command )?not found$|(?:^|: )(?:exec: )?(\S+): (?:command not found|No such file or directory)$`)

// startFailed explains a process that containerd could not start.
func startFailed(f Facts) (Verdict, bool) {
	if f.First.Cause != StartFailed {
		return Verdict{}, false
	}
	v := Verdict{Class: StartFailed, Sentence: f.first() + " could not start", Advice: "Check `command` in the manifest" + sidecarPart(f)}
	if f.First.Detail != "" {
		v.Sentence += ": " + quote(f.First.Detail)
	}
	return v, true
}
