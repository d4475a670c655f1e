package main

import (
	"errors"
	"strings"
)

// errNeedsShell says that only a shell can interpret a command.
var errNeedsShell = errors.New("the stack has no shell, so the command can contain only a program, its arguments, quotes and $VARIABLES")

// words splits a command if there is no shell. Quotes, backslashes and variables have
// the same meaning as in a shell. All other shell syntax is refused instead of being
// used literally.
func words(command string, env []string) ([]string, error) {
	w := splitter{env: env}
	for i := 0; i < len(command); {
		n, err := w.take(command[i:])
		if err != nil {
			return nil, err
		}
		i += n
	}
	if w.quote != 0 {
		return nil, errNeedsShell
	}
	w.end()
	if len(w.words) > 0 && w.words[0] == "exec" {
		w.words = w.words[1:]
	}
	if len(w.words) == 0 {
		return nil, errNeedsShell
	}
	return w.words, nil
}

type splitter struct {
	env   []string
	words []string
	word  []byte
	begun bool // a word has started, even if it is empty
	quote byte // open quote, 0 for none
}

// take reads the first element of command and returns its length.
func (w *splitter) take(command string) (int, error) {
	c := command[0]
	switch {
	case w.quote != 0 && c == w.quote:
		w.quote = 0
		return 1, nil
	case w.quote == '\'':
		w.add(c)
		return 1, nil
	case c == '\\':
		return w.escape(command)
	case c == '$':
		return w.variable(command)
	case c == '`':
		return 0, errNeedsShell
	case w.quote == '"':
		w.add(c)
		return 1, nil
	case c == '\'' || c == '"':
		w.quote, w.begun = c, true
		return 1, nil
	case c == ' ' || c == '\t':
		w.end()
		return 1, nil
	case strings.IndexByte("|&;<>()*?[]{}~#!\n\r", c) >= 0:
		return 0, errNeedsShell
	}
	w.add(c)
	return 1, nil
}

func (w *splitter) add(c byte) { w.word, w.begun = append(w.word, c), true }

func (w *splitter) end() {
	if w.begun {
		w.words = append(w.words, string(w.word))
	}
	w.word, w.begun = nil, false
}

// escape reads a backslash and the character after it.
func (w *splitter) escape(command string) (int, error) {
	if len(command) < 2 {
		return 0, errNeedsShell
	}
	if w.quote == '"' && strings.IndexByte("$`\"\\", command[1]) < 0 {
		w.add('\\') // in quotes it is an ordinary character
	}
	w.add(command[1])
	return 2, nil
}

// variable reads $NAME or ${NAME}. Its value is never split.
func (w *splitter) variable(command string) (int, error) {
	rest, braced := strings.CutPrefix(command[1:], "{")
	n := 0
	for n < len(rest) && nameByte(rest[n], n) {
		n++
	}
	length := 1 + n
	if braced {
		length += 2
	}
	if n == 0 || braced && (n == len(rest) || rest[n] != '}') {
		return 0, errNeedsShell
	}
	for _, kv := range w.env {
		if value, ok := strings.CutPrefix(kv, rest[:n]+"="); ok {
			w.word = append(w.word, value...)
			w.begun = w.begun || value != ""
			break
		}
	}
	return length, nil
}

func nameByte(c byte, at int) bool {
	letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	return letter || at > 0 && c >= '0' && c <= '9'
}
