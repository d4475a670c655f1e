package smoke

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ohler55/ojg/jp"
)

// File is the name of the file with the checks of a folder.
const File = "smoke.yml"

const (
	folderTimeout = 5 * time.Minute
	checkTimeout  = 30 * time.Second
	// An instance that crashed a few times waits for half a minute before its next
	// start, and its processes are stopped before that.
	exitTimeout = 90 * time.Second
)

// Spec is the content of a smoke.yml.
type Spec struct {
	Alone     bool
	Needs     []string // required programs, by name or path; if one is missing, the folder is skipped
	Build     string
	Manifests []string // as written, relative to the folder of the file
	Variables map[string]any
	Services  []Service
	Before    string
	Timeout   time.Duration
	Checks    []Check
}

// Service is a service instance that is created before the push.
type Service struct {
	Name, Offering, Plan string
	Parameters           json.RawMessage // empty for none
}

// Check is one condition that must hold. One of HTTP, Log, Kill, SSH, Mail and Run is
// set. Exit is allowed with those that can stop a process.
type Check struct {
	Name    string
	App     string // empty for the first
	Timeout time.Duration
	Line    int
	HTTP    *HTTPCheck
	Log     *LogCheck
	Kill    *KillCheck
	SSH     *SSHCheck
	Mail    *MailCheck
	Run     string
	Exit    *ExitCheck
}

// HTTPCheck is a request to an app, and the expected response.
type HTTPCheck struct {
	Method, Path, Host string
	Port               int // 0 for any route of the app
	Headers            map[string]string
	Body               string
	Status             []int
	Header             map[string]string
	Text               Text
	JSON               []JSONCheck
}

// JSONCheck is an expected value at a path of a response.
type JSONCheck struct {
	Path string
	Want any
	expr jp.Expr
}

// Text is a condition for a text.
type Text struct {
	Contains []string
	Equals   *string
	Matches  []*regexp.Regexp
}

// LogCheck is a line that must have been printed since the start of the push.
type LogCheck struct {
	Source string // empty for any
	Text   Text
}

// KillCheck is a signal to a process or a sidecar.
type KillCheck struct {
	Process, Sidecar, Signal string
	Instance                 int
}

// ExitCheck is the expected exit record. An empty field matches anything.
type ExitCheck struct{ Description, Reason string }

// SSHCheck is a command inside an instance, and its expected result.
type SSHCheck struct {
	Command, Process string
	Instance         int
	Status           []int
	Text             Text
}

// MailCheck is a mail that must arrive.
type MailCheck struct {
	To, Subject string
	Text        Text
}

// withDefaults fills in missing values of a smoke.yml.
func (s Spec) withDefaults() Spec {
	if len(s.Manifests) == 0 {
		s.Manifests = []string{"manifest.yml"}
	}
	if s.Timeout == 0 {
		s.Timeout = folderTimeout
	}
	s.Checks = slices.Clone(s.Checks)
	for i := range s.Checks {
		s.Checks[i] = s.Checks[i].withDefaults()
	}
	return s
}

func (c Check) withDefaults() Check {
	if c.Timeout == 0 {
		c.Timeout = checkTimeout
		if c.causesCrash() {
			c.Timeout = exitTimeout
		}
	}
	if c.Kill != nil && c.Exit == nil {
		c.Exit = &ExitCheck{}
	}
	if c.Name == "" {
		c.Name = c.describe()
	}
	return c
}

// causesCrash reports whether the check makes an instance crash.
func (c Check) causesCrash() bool { return c.Kill != nil || c.Exit != nil }

// describe describes a check by its action.
func (c Check) describe() string {
	switch {
	case c.HTTP != nil:
		name := c.HTTP.Method + " " + c.HTTP.Path
		if c.HTTP.Host != "" {
			name += " of " + c.HTTP.Host
		}
		if c.HTTP.Port != 0 {
			name += fmt.Sprintf(" at port %d", c.HTTP.Port)
		}
		return name
	case c.Log != nil:
		return "log: " + c.Log.Text.short()
	case c.Kill != nil:
		victim := c.Kill.Process
		if c.Kill.Sidecar != "" {
			victim = "sidecar " + c.Kill.Sidecar
		}
		return "kill " + victim
	case c.SSH != nil:
		return "ssh: " + firstLine(c.SSH.Command)
	case c.Mail != nil:
		return "mail to " + c.Mail.To
	default:
		return "run: " + firstLine(c.Run)
	}
}

// short is the text in the name of a check.
func (t Text) short() string {
	switch {
	case len(t.Contains) > 0:
		return shorten(t.Contains[0])
	case len(t.Matches) > 0:
		return shorten(t.Matches[0].String())
	case t.Equals != nil:
		return shorten(*t.Equals)
	default:
		return "any line"
	}
}

func (t Text) empty() bool { return len(t.Contains) == 0 && len(t.Matches) == 0 && t.Equals == nil }

func firstLine(s string) string {
	line, more, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if strings.TrimSpace(more) != "" {
		line += " …"
	}
	return shorten(line)
}
