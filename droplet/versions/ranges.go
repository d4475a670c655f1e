package versions

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// accepter reports whether a range contains a version.
type accepter = func(found *semver.Version) bool

// maxRange is far more than a range needs.
const maxRange = 256

var errLongRange = errors.New("it is longer than 256 characters")

// npmRange parses a range of npm, such as ^20 or >=18 <21. Missing numbers match all.
func npmRange(text string) (accepter, error) {
	if len(text) > maxRange {
		return nil, errLongRange
	}
	c, err := semver.NewConstraint(text)
	if err != nil {
		return nil, notRange(text)
	}
	return c.Check, nil
}

func notRange(text string) error { return fmt.Errorf("%q is not a version or a range", short(text)) }

// plainVersion matches a version, of which later numbers can be missing or wildcards.
var plainVersion = regexp.MustCompile(`^v?\d+(\.(\d+|[xX*+]))*$`)

// prefix parses a version whose missing numbers match all, such as 3.11 or 3.11.x.
func prefix(text string) (accepter, error) {
	if len(text) > maxRange || !plainVersion.MatchString(text) {
		return nil, fmt.Errorf("%q is not a version", short(text))
	}
	var want []uint64
	for number := range strings.SplitSeq(strings.TrimPrefix(text, "v"), ".") {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			if number[0] >= '0' && number[0] <= '9' {
				return nil, fmt.Errorf("%q is not a version", short(text))
			}
			break // a wildcard
		}
		want = append(want, n)
	}
	return func(found *semver.Version) bool {
		for i, n := range []uint64{found.Major(), found.Minor(), found.Patch()} {
			if i < len(want) && n != want[i] {
				return false
			}
		}
		return true
	}, nil
}

// comparison matches one comparison of a gem or a composer package.
var comparison = regexp.MustCompile(`^(~>|>=|<=|!=|<>|==|=|>|<|~|\^)?\s*v?(\d+(?:\.\d+)*)(\.\*|\.[xX])?(?:[-@.][A-Za-z][A-Za-z0-9.]*)?$`)

// version3 returns a version with exactly three numbers.
func version3(numbers []uint64) *semver.Version {
	var n [3]uint64
	copy(n[:], numbers)
	return semver.New(n[0], n[1], n[2], "", "")
}

// after returns the lowest version above all that start with these numbers.
func after(numbers []uint64) *semver.Version {
	next := append([]uint64(nil), numbers...)
	next[len(next)-1]++
	return version3(next)
}

// within accepts versions from low up to, but not including, high.
func within(low, high *semver.Version) accepter {
	return func(v *semver.Version) bool { return v.Compare(low) >= 0 && v.Compare(high) < 0 }
}

// compare parses one comparison. Unlike in npm, missing numbers are 0.
func compare(text string) (accepter, error) {
	m := comparison.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return nil, notRange(text)
	}
	var numbers []uint64
	for number := range strings.SplitSeq(m[2], ".") {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return nil, notRange(text)
		}
		numbers = append(numbers, n)
	}
	numbers = numbers[:min(len(numbers), 3)]
	if m[3] != "" {
		if len(numbers) == 3 || m[1] != "" && m[1] != "=" && m[1] != "==" {
			return nil, notRange(text)
		}
		return within(version3(numbers), after(numbers)), nil
	}
	want := version3(numbers)
	switch m[1] {
	case "~>", "~": // the last number can grow
		return within(want, after(numbers[:max(1, len(numbers)-1)])), nil
	case "^": // the first number that is not 0 stays
		keep := 1
		for keep < len(numbers) && numbers[keep-1] == 0 {
			keep++
		}
		return within(want, after(numbers[:keep])), nil
	case ">=":
		return func(v *semver.Version) bool { return v.Compare(want) >= 0 }, nil
	case "<=":
		return func(v *semver.Version) bool { return v.Compare(want) <= 0 }, nil
	case ">":
		return func(v *semver.Version) bool { return v.Compare(want) > 0 }, nil
	case "<":
		return func(v *semver.Version) bool { return v.Compare(want) < 0 }, nil
	case "!=", "<>":
		return func(v *semver.Version) bool { return !v.Equal(want) }, nil
	}
	return want.Equal, nil
}

// all parses comparisons that must all be satisfied.
func all(parts []string) (accepter, error) {
	var accept []accepter
	for _, part := range parts {
		a, err := compare(part)
		if err != nil {
			return nil, err
		}
		accept = append(accept, a)
	}
	return func(v *semver.Version) bool {
		for _, a := range accept {
			if !a(v) {
				return false
			}
		}
		return true
	}, nil
}

var (
	composerOr  = regexp.MustCompile(`\s*\|\|?\s*`)
	composerAnd = regexp.MustCompile(`\s*,\s*|\s+`)
	// operatorSpace matches the space after an operator, which does not separate.
	operatorSpace = regexp.MustCompile(`(~>|>=|<=|!=|<>|==|=|>|<|~|\^)\s+`)
	// composerHyphen matches a range such as 7.4 - 8.2.
	composerHyphen = regexp.MustCompile(`^\s*v?(\d+(?:\.\d+){0,2})\s+-\s+v?(\d+(?:\.\d+){0,2})\s*$`)
)

// composerRange parses a range of composer, such as ^8.1 || ~7.4.
func composerRange(text string) (accepter, error) {
	if len(text) > maxRange {
		return nil, errLongRange
	}
	var alternatives []accepter
	for _, alternative := range composerOr.Split(strings.TrimSpace(text), -1) {
		a, err := composerAlternative(alternative)
		if err != nil {
			return nil, notRange(text)
		}
		alternatives = append(alternatives, a)
	}
	return func(v *semver.Version) bool {
		for _, a := range alternatives {
			if a(v) {
				return true
			}
		}
		return false
	}, nil
}

// composerAlternative parses comparisons that must all be satisfied.
func composerAlternative(text string) (accepter, error) {
	if m := composerHyphen.FindStringSubmatch(text); m != nil {
		return hyphenRange(m[1], m[2])
	}
	text = operatorSpace.ReplaceAllString(strings.TrimSpace(text), "$1")
	if text == "*" {
		return func(*semver.Version) bool { return true }, nil
	}
	return all(composerAnd.Split(text, -1))
}

// hyphenRange accepts versions from low up to high. The missing numbers of high match
// all.
func hyphenRange(low, high string) (accepter, error) {
	most := "<=" + high
	if dots := strings.Count(high, "."); dots < 2 {
		most = "<=" + high + strings.Repeat(".4294967295", 2-dots)
	}
	return all([]string{">=" + low, most})
}
