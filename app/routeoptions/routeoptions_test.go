package routeoptions

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// problems collects "option: message".
func problems(into *[]string) Problem {
	return func(option, message string) { *into = append(*into, option+": "+message) }
}

func TestCheckRequest(t *testing.T) {
	const hint = ". An administrator can enable the feature flag hash_based_routing"
	for name, tt := range map[string]struct {
		options map[string]string
		hash    bool
		want    []string
	}{
		"nothing":         {nil, false, nil},
		"round-robin":     {map[string]string{Balancing: RoundRobin}, false, nil},
		"disabled":        {map[string]string{Balancing: Hash}, false, []string{"loadbalancing: must be one of 'round-robin, least-connection' if present" + hint}},
		"disabled header": {map[string]string{HashHeader: "X", HashBalance: "2"}, false, []string{": Unknown field(s): 'hash_balance', 'hash_header'" + hint}},
		"enabled":         {map[string]string{Balancing: Hash, HashHeader: "X", HashBalance: "2"}, true, nil},
		"coin":            {map[string]string{Balancing: "coin"}, true, []string{"loadbalancing: must be one of 'round-robin, least-connection, hash' if present"}},
		"unknown":         {map[string]string{"x": "y"}, true, []string{": Unknown field(s): 'x'"}},
		"only a header":   {map[string]string{HashHeader: "X"}, true, nil},
		"header without hash": {
			map[string]string{Balancing: RoundRobin, HashHeader: "X", HashBalance: "2"},
			true,
			[]string{": Hash header can only be set when loadbalancing is hash", ": Hash balance can only be set when loadbalancing is hash"},
		},
	} {
		var got []string
		CheckRequest(tt.options, tt.hash, problems(&got))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCheck(t *testing.T) {
	with := func(header, balance string) map[string]string {
		return map[string]string{Balancing: Hash, HashHeader: header, HashBalance: balance}
	}
	for name, tt := range map[string]struct {
		options map[string]string
		want    string
	}{
		"nothing":        {nil, ""},
		"hash":           {with("X-User-ID", "1.25"), ""},
		"no balance":     {with("Cookie", ""), ""},
		"zero":           {with("X", "0"), ""},
		"lowest":         {with("X", "1.1"), ""},
		"highest":        {with("X", "10"), ""},
		"no header":      {with("", "2"), ": Hash header must be present when loadbalancing is set to hash."},
		"long header":    {with(strings.Repeat("x", 129), ""), "hash_header: must be at most 128 characters"},
		"no header name": {with("a b", ""), "hash_header: must be the name of a header, such as X-User-ID"},
		"too low":        {with("X", "1.05"), "hash_balance: must be either 0 or between 1.1 and 10.0"},
		"too high":       {with("X", "10.1"), "hash_balance: must be either 0 or between 1.1 and 10.0"},
		"negative":       {with("X", "-2"), "hash_balance: must be either 0 or between 1.1 and 10.0"},
		"a word":         {with("X", "much"), "hash_balance: must be a numeric value"},
		"not a number":   {with("X", "NaN"), "hash_balance: must be a numeric value"},
		"long":           {with("X", "1.11111111111111111"), "hash_balance: must be at most 16 characters"},
		"other":          {map[string]string{Balancing: "coin"}, "loadbalancing: must be one of 'round-robin, least-connection, hash' if present"},
		"unknown":        {map[string]string{"x": "y"}, "x: is not a known option: the options are loadbalancing, hash_header, hash_balance"},
	} {
		var got []string
		Check(tt.options, problems(&got))
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestNormal(t *testing.T) {
	for name, tt := range map[string]struct{ options, want map[string]string }{
		"nothing":     {map[string]string{}, nil},
		"round-robin": {map[string]string{Balancing: RoundRobin, HashHeader: "X", HashBalance: "2"}, map[string]string{Balancing: RoundRobin}},
		"no method":   {map[string]string{HashHeader: "X"}, nil},
		"rounded":     {map[string]string{Balancing: Hash, HashHeader: "X", HashBalance: "1.25"}, map[string]string{Balancing: Hash, HashHeader: "X", HashBalance: "1.3"}},
		"whole":       {map[string]string{Balancing: Hash, HashHeader: "X", HashBalance: "2"}, map[string]string{Balancing: Hash, HashHeader: "X", HashBalance: "2.0"}},
		"zero":        {map[string]string{Balancing: Hash, HashHeader: "X", HashBalance: "0"}, map[string]string{Balancing: Hash, HashHeader: "X", HashBalance: "0.0"}},
		"empty":       {map[string]string{Balancing: Hash, HashHeader: "X", HashBalance: ""}, map[string]string{Balancing: Hash, HashHeader: "X"}},
	} {
		if diff := cmp.Diff(tt.want, Normal(tt.options)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Normal options stay as they are, and have no new problems.
func FuzzNormal(f *testing.F) {
	f.Add(Hash, "X-User-ID", "1.25")
	f.Add(RoundRobin, "", "1e0")
	f.Add(Hash, "a b", "0x1p1")
	f.Fuzz(func(t *testing.T, balancing, header, balance string) {
		in := map[string]string{Balancing: balancing, HashHeader: header, HashBalance: balance}
		out := Normal(in)
		if diff := cmp.Diff(out, Normal(out)); diff != "" {
			t.Errorf("Normal changes normal options:\n%s", diff)
		}
		var before, after []string
		Check(in, problems(&before))
		Check(out, problems(&after))
		if len(before) == 0 && len(after) > 0 {
			t.Errorf("%v is allowed, but %v has problems: %q", in, out, after)
		}
	})
}
