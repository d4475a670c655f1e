package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes is the maximum size of a file in bytes, unless its reader allows less.
const MaxBytes = 1 << 20

// Limits of every file. Nodes are counted with anchors expanded: a few lines that refer
// to each other could otherwise expand to millions of nodes. No file that users write
// has this depth; without the limit, brackets alone could exhaust the stack.
const (
	maxNodes = 100_000
	maxDepth = 100
)

// Read parses one document of at most this number of bytes. The error is an *Error.
func Read(b []byte, most int) (n *Node, err error) {
	if len(b) > most {
		return nil, &Error{Message: fmt.Sprintf("the text has %d bytes, but at most %d are allowed", len(b), most)}
	}
	// A panic of the library on unusual input must affect only this file.
	defer func() {
		if v := recover(); v != nil {
			n, err = nil, &Error{Message: fmt.Sprintf("the text is not YAML that dew can read: %v", v)}
		}
	}()
	if line := invalidLine(b); line > 0 {
		return nil, &Error{Line: line, Message: "the text is not valid UTF-8"}
	}
	tokens := lexer.Tokenize(string(b))
	if line := tooDeep(tokens); line > 0 {
		return nil, deepError(line)
	}
	if line := noCharacter(b, tokens); line > 0 {
		return nil, &Error{Line: line, Message: "the text is not valid UTF-8: a \\u escape is not a character"}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxError(err)
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.DirectiveType {
			continue
		}
		if body != nil {
			return nil, &Error{Line: lineOf(d.Body), Message: "a second YAML document starts here: only one is allowed"}
		}
		body = d.Body
	}
	if body == nil {
		return &Node{size: 1}, nil
	}
	y := &resolver{anchors: map[string]*Node{}}
	return y.read(body)
}

func syntaxError(err error) error {
	var se *yaml.SyntaxError
	if !errors.As(err, &se) {
		return &Error{Message: "the text is not YAML: " + err.Error()}
	}
	line := 0
	if se.Token != nil && se.Token.Position != nil {
		line = se.Token.Position.Line
	}
	return &Error{Line: line, Message: "the text is not YAML: " + se.Message}
}

// invalidLine returns the first line that is not UTF-8, or 0. The lexer would insert
// U+FFFD there, which could make two names equal.
func invalidLine(b []byte) int {
	if utf8.Valid(b) {
		return 0
	}
	line := 1
	for text := range bytes.Lines(b) {
		if !utf8.Valid(text) {
			break
		}
		line++
	}
	return line
}

// replacementEscape matches U+FFFD that a client wrote on purpose.
var replacementEscape = regexp.MustCompile(`(?i)\\u(0000)?fffd`)

// noCharacter returns the line of a quoted text with an escape that is not a character
// (half of a surrogate pair), or 0. The lexer inserts U+FFFD there.
func noCharacter(b []byte, tokens token.Tokens) int {
	written := len(replacementEscape.FindAllIndex(b, -1))
	for _, t := range tokens {
		if t.Type != token.DoubleQuoteType {
			continue
		}
		// The origin has the characters as written, and no escapes.
		written -= strings.Count(t.Value, replacement) - strings.Count(t.Origin, replacement)
		if written < 0 {
			return t.Position.Line
		}
	}
	return 0
}

const replacement = string(utf8.RuneError)

func deepError(line int) error {
	return &Error{Line: line, Message: fmt.Sprintf("the text is nested too deeply: at most %d levels are allowed", maxDepth)}
}

// tooDeep returns the line in which nesting exceeds maxDepth, or 0. The parser's time
// grows with the square of the nesting depth within one line, so it must not see deeper
// input.
func tooDeep(tokens token.Tokens) int {
	open, line, marks := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, marks = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open++
			marks = 0
		case token.SequenceEndType, token.MappingEndType:
			open = max(0, open-1)
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			marks++
		case token.MappingValueType:
			if open == 0 { // inside brackets they are siblings
				marks++
			}
		case token.CollectEntryType:
			marks = 0
		}
		if open > maxDepth || marks > maxDepth {
			return line
		}
	}
	return 0
}
