//go:build integration

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The scripts use these methods:
//
//	s.cf("create-org acme", "OK")                   it succeeds and prints the text
//	s.refuses("space nowhere", "not found")         it exits with 1 and prints FAILED
//	s.exits(22, "curl -f /v3/apps/none")            it exits with another code
//	s.passes("restage shop --no-wait")              its last reads are not recorded
//	s.live(0, "ssh shop -c env", "PORT=8080")       it is not recorded
//
// A command line has words, 'words with blanks', and placeholders such as
// $password-admin. A wanted text that starts with ^ is a regular expression over lines;
// one that starts with ! must not be printed. Columns are separated by one blank.

// result is the result of a command.
type result struct {
	out  string // its output, both streams
	code int
}

// cf runs a command that must succeed, and records its requests.
func (s *stock) cf(line string, want ...string) string {
	s.t.Helper()
	return s.exits(0, line, want...)
}

// refuses runs a command that must fail and print FAILED.
func (s *stock) refuses(line string, want ...string) string {
	s.t.Helper()
	return s.exits(1, line, append(want, "FAILED")...)
}

// exits runs a command that must exit with a code.
func (s *stock) exits(code int, line string, want ...string) string {
	s.t.Helper()
	args := s.words(line)
	s.takeRaw()
	r := s.once(args)
	s.keep(args, r.code)
	s.says(line, r, code, want)
	return r.out
}

// passes runs a command that returns before its work is finished. Its last reads depend
// on timing, so nothing is recorded after its last change.
func (s *stock) passes(line string, want ...string) string {
	s.t.Helper()
	s.passing = true
	defer func() { s.passing = false }()
	return s.cf(line, want...)
}

// live runs a command that needs a real container. It is not recorded, so no later
// command can depend on it.
func (s *stock) live(code int, line string, want ...string) string {
	s.t.Helper()
	r := s.once(s.words(line))
	s.takeRaw()
	s.says(line, r, code, want)
	return r.out
}

var aWord = regexp.MustCompile(`'[^']*'|[^\s']+`)

// words returns the arguments of a command line.
func (s *stock) words(line string) []string {
	words := aWord.FindAllString(line, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
		for name, text := range s.hidden {
			words[i] = strings.ReplaceAll(words[i], name, text)
		}
	}
	return words
}

// once runs a command until it exits.
func (s *stock) once(args []string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := s.command(ctx, args...)
	s.ran = append(s.ran, args[0])
	if s.input != nil {
		cmd.Stdin = strings.NewReader(strings.Join(s.input, "\n") + "\n")
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	s.t.Log(s.tape.Normal(fmt.Sprintf("cf %s\n%s", strings.Join(args, " "), out)))
	return result{out: string(out), code: cmd.ProcessState.ExitCode()}
}

// command returns a command of the client.
func (s *stock) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.bin, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "CF_HOME="+s.home, "CF_COLOR=false", "LANG=C", "CF_TRACE=", "CF_STARTUP_TIMEOUT=1", "CF_STAGING_TIMEOUT=2")
	return cmd
}

// follow runs a command until it has printed a text, then interrupts it.
func (s *stock) follow(until, line string) {
	s.t.Helper()
	args := s.words(line)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	s.takeRaw()
	cmd := s.command(ctx, args...)
	out := &watched{text: until, seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-out.seen:
	case <-ctx.Done():
		s.t.Errorf("cf %s did not write %q:\n%s", strings.Join(args, " "), until, out)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Error(err)
	}
	_ = cmd.Wait() // it was interrupted
	s.t.Log(s.tape.Normal(fmt.Sprintf("cf %s\n%s", strings.Join(args, " "), out)))
	s.keep(args, 0)
}

// watched waits for a text in the output.
type watched struct {
	mu   sync.Mutex // guards buf
	buf  bytes.Buffer
	text string
	seen chan struct{}
	once sync.Once
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if strings.Contains(w.buf.String(), w.text) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// says checks the exit code and the output of a command.
func (s *stock) says(line string, r result, code int, want []string) {
	s.t.Helper()
	if r.code != code {
		s.t.Errorf("cf %s: status %d, want %d\n%s", line, r.code, code, r.out)
	}
	for _, w := range want {
		text, not := strings.CutPrefix(w, "!")
		if found := holds(r.out, text); found == not {
			s.t.Errorf("cf %s writes %q: %v, want %v\n%s", line, text, found, !not, r.out)
		}
	}
}

// holds reports whether an output has a text: a whole line, or a part that is long
// enough not to match by chance.
func holds(out, text string) bool {
	if strings.HasPrefix(text, "^") {
		return regexp.MustCompile("(?m)" + text).MatchString(out)
	}
	return slices.ContainsFunc(lines(out), func(l string) bool { return l == text || len(text) > 8 && strings.Contains(l, text) })
}

// lines returns the lines of an output, with columns separated by one blank.
func lines(out string) []string {
	var ls []string
	for l := range strings.Lines(out) {
		ls = append(ls, strings.Join(strings.Fields(l), " "))
	}
	return ls
}

// eventuallySays runs a command that is not recorded until it prints a text.
func (s *stock) eventuallySays(text, line string) string {
	s.t.Helper()
	var got []byte
	s.eventually("cf "+line+" writes "+text, func() error {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		var err error
		if got, err = s.command(ctx, s.words(line)...).CombinedOutput(); err == nil && !holds(string(got), text) {
			err = errors.New(string(got))
		}
		return err
	})
	s.takeRaw()
	return string(got)
}

func (s *stock) readFile(path string) []byte {
	s.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *stock) write(name string, data []byte) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// packed is a file of a zip.
type packed struct {
	name string
	data []byte
}

// zip writes the files in their order, which is that of cf's requests.
func (s *stock) zip(name string, files ...packed) {
	s.t.Helper()
	f, err := os.Create(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	w := zip.NewWriter(f)
	for _, f := range files {
		p, err := w.Create(f.name)
		if err == nil {
			_, err = p.Write(f.data)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// part is a part of a script.
type part struct {
	name string
	run  func()
}

// parts runs a script. Nothing is recorded after a failure.
func (s *stock) parts(all ...part) {
	s.t.Helper()
	for _, p := range all {
		if s.t.Failed() && os.Getenv("DEW_RECORD") == "1" {
			s.t.Fatal("not recorded further: what follows a failure says nothing")
		}
		s.t.Logf("---- %s", p.name)
		p.run()
	}
}

// types runs a command that must succeed, with input from the keyboard.
func (s *stock) types(input, line string, want ...string) {
	s.t.Helper()
	s.input = s.words(input)
	s.cf(line, want...)
	s.input = nil
}

// cutLast cuts a text at the last separator.
func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}
