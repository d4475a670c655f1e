// Package routeoptions has the load balancing options of routes: their names, values and
// rules. The rules and messages are those of Cloud Foundry.
package routeoptions

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// The names of the options.
const (
	Balancing   = "loadbalancing"
	HashHeader  = "hash_header"  // the header whose value selects the instance
	HashBalance = "hash_balance" // the maximal load of an instance, relative to the average
)

// The values of Balancing.
const (
	RoundRobin      = "round-robin"      // instances get requests in turn
	LeastConnection = "least-connection" // the instance with the fewest connections gets the next one
	Hash            = "hash"             // requests with the same header value get the same instance
)

// FeatureFlag is the feature flag that allows the value Hash, and the options for it.
const FeatureFlag = "hash_based_routing"

// Limits of the values.
const (
	maxHeader  = 128
	maxBalance = 16
)

// Problem is called for each problem with the name of an option. It is empty if several
// options are meant.
type Problem func(option, message string)

// CheckRequest checks options as a client sets them. The options that the route has
// already do not matter. If hash is false, the feature flag is disabled.
func CheckRequest(options map[string]string, hash bool, problem Problem) {
	names, values := []string{Balancing}, []string{RoundRobin, LeastConnection}
	if hash {
		names, values = append(names, HashHeader, HashBalance), append(values, Hash)
	}
	hint := ""
	if !hash && (options[Balancing] == Hash || options[HashHeader] != "" || options[HashBalance] != "") {
		hint = ". An administrator can enable the feature flag " + FeatureFlag
	}
	if v := options[Balancing]; v != "" && !slices.Contains(values, v) {
		problem(Balancing, "must be one of '"+strings.Join(values, ", ")+"' if present"+hint)
	}
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(options)), func(name string) bool { return slices.Contains(names, name) })
	if len(unknown) > 0 {
		problem("", "Unknown field(s): '"+strings.Join(unknown, "', '")+"'"+hint)
	}
	if v := options[Balancing]; !hash || v == "" || v == Hash {
		return
	}
	if options[HashHeader] != "" {
		problem("", "Hash header can only be set when loadbalancing is hash")
	}
	if options[HashBalance] != "" {
		problem("", "Hash balance can only be set when loadbalancing is hash")
	}
}

// CheckNew checks options that replace those of a route.
func CheckNew(options map[string]string, hash bool, problem Problem) {
	found := false
	CheckRequest(options, hash, func(option, message string) {
		found = true
		problem(option, message)
	})
	if !found {
		Check(Normal(options), problem)
	}
}

// Check checks the options of a route. It allows Hash whatever the feature flag is:
// routes keep their options when it is disabled.
func Check(options map[string]string, problem Problem) {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if message := check(name, options[name]); message != "" {
			problem(name, message)
		}
	}
	if options[Balancing] == Hash && options[HashHeader] == "" {
		problem("", "Hash header must be present when loadbalancing is set to hash.")
	}
}

// check returns what is wrong with an option, or nothing.
func check(name, v string) string {
	switch name {
	case Balancing:
		if v != RoundRobin && v != LeastConnection && v != Hash {
			return "must be one of '" + strings.Join([]string{RoundRobin, LeastConnection, Hash}, ", ") + "' if present"
		}
	case HashHeader:
		if utf8.RuneCountInString(v) > maxHeader {
			return "must be at most 128 characters"
		}
		if v != "" && !httpguts.ValidHeaderFieldName(v) {
			return "must be the name of a header, such as X-User-ID"
		}
	case HashBalance:
		return checkBalance(v)
	default:
		return "is not a known option: the options are " + strings.Join([]string{Balancing, HashHeader, HashBalance}, ", ")
	}
	return ""
}

func checkBalance(v string) string {
	if v == "" {
		return ""
	}
	if utf8.RuneCountInString(v) > maxBalance {
		return "must be at most 16 characters"
	}
	f, err := strconv.ParseFloat(v, 64)
	switch {
	case err != nil || math.IsNaN(f) || math.IsInf(f, 0):
		return "must be a numeric value"
	case f != 0 && (f < 1.1 || f > 10):
		return "must be either 0 or between 1.1 and 10.0"
	}
	return ""
}

// Normal returns the options as they are stored: without empty values, without the
// options of Hash unless it is set, and with one decimal in HashBalance. It returns nil
// if there are none.
func Normal(options map[string]string) map[string]string {
	out := maps.Clone(options)
	maps.DeleteFunc(out, func(name, v string) bool {
		return v == "" || out[Balancing] != Hash && (name == HashHeader || name == HashBalance)
	})
	if v, ok := out[HashBalance]; ok && checkBalance(v) == "" {
		out[HashBalance] = strconv.FormatFloat(Factor(v), 'f', 1, 64)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Factor returns the value of HashBalance, rounded to one decimal. It returns 0 if the
// load of instances does not matter.
func Factor(v string) float64 {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || checkBalance(v) != "" {
		return 0
	}
	return math.Round(f*10) / 10
}
