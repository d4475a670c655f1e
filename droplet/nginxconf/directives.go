package nginxconf

import "strings"

// directive is one directive of a configuration.
type directive struct {
	block string // names of the enclosing blocks with slashes: "", "http", "http/server"
	name  string
	args  []string
	file  string
	line  int
	open  int // of a block: offset after its brace; otherwise 0
}

// scanner splits a configuration into words and signs.
type scanner struct {
	text string
	at   int
	line int
}

// next returns the next word, or one of { } ; as a sign. Both are empty at the end.
func (s *scanner) next() (word, sign string) {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '\n':
			s.line++
			s.at++
		case c == ' ', c == '\t', c == '\r':
			s.at++
		case c == '#':
			end := strings.IndexByte(s.text[s.at:], '\n')
			if end < 0 {
				s.at = len(s.text)
				return "", ""
			}
			s.at += end
		case c == '{', c == '}', c == ';':
			s.at++
			return "", string(c)
		case c == '"', c == '\'':
			return s.quoted(c), ""
		default:
			return s.word(), ""
		}
	}
	return "", ""
}

// quoted reads a word in quotes. Its result is never empty.
func (s *scanner) quoted(quote byte) string {
	start := s.at
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\n':
			s.line++
		case '\\':
			s.at++
		case quote:
			s.at++
			return s.text[start:s.at]
		}
	}
	s.at = len(s.text)
	return s.text[start:]
}

// word reads a word without quotes. A brace after a dollar sign belongs to it.
func (s *scanner) word() string {
	start := s.at
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '\\':
			s.at++
		case c == '{' && s.text[s.at-1] == '$' && s.at > start:
			for s.at < len(s.text)-1 && s.text[s.at] != '}' && s.text[s.at] != '\n' {
				s.at++
			}
		case strings.IndexByte(" \t\r\n;{", c) >= 0:
			return s.text[start:s.at]
		}
	}
	s.at = min(s.at, len(s.text))
	return s.text[start:s.at]
}

// parse returns the directives of a configuration that is in a block. It never fails:
// nginx itself finds the errors.
func parse(file, text, block string) []directive {
	var out []directive
	var words []string
	var blocks []string
	if block != "" {
		blocks = strings.Split(block, "/")
	}
	s := &scanner{text: text, line: 1}
	line := 1
	for {
		word, sign := s.next()
		switch {
		case word == "" && sign == "":
			return out
		case word != "":
			if len(words) == 0 {
				line = s.line
			}
			words = append(words, word)
			continue
		case sign == "}" && len(blocks) > 0:
			blocks = blocks[:len(blocks)-1]
		case len(words) > 0 && sign != "}":
			d := directive{block: strings.Join(blocks, "/"), name: words[0], args: words[1:], file: file, line: line}
			if sign == "{" {
				d.open = s.at
				blocks = append(blocks, words[0])
			}
			out = append(out, d)
		case sign == "{":
			blocks = append(blocks, "{") // without a name, which nginx refuses
		}
		words = nil
	}
}

// all returns the directives of nginx.conf with those of the files that it includes.
func (f Files) all() []directive {
	var out []directive
	for _, d := range parse(Main, f[Main], "") {
		out = append(out, d)
		if d.name != "include" || len(d.args) != 1 {
			continue
		}
		name := strings.TrimPrefix(strings.Trim(d.args[0], `"'`), "./")
		if text, ok := f[name]; ok && name != Main {
			out = append(out, parse(name, text, d.block)...)
		}
	}
	return out
}
