// Package spelling finds the name that a misspelt one most likely means.
package spelling

import "strings"

// Nearest returns the candidate that asked is most likely a misspelling of, or nothing
// if none is near.
func Nearest(asked string, candidates []string) string {
	best, least := "", max(1, len(asked)/3)+1
	for _, c := range candidates {
		if d := distance(asked, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of letters to add, drop, change or swap.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, prev, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(y)]
}

// plainKey removes the characters in which spellings of a key differ.
var plainKey = strings.NewReplacer("-", "", "_", "")

// NearestKey returns the key of a file that name is most likely a misspelling of, or
// nothing.
func NearestKey(name string, known []string) string {
	name = plainKey.Replace(strings.ToLower(name))
	plain := make([]string, len(known))
	for i, k := range known {
		if plain[i] = plainKey.Replace(k); plain[i] == name {
			return k
		}
	}
	near := Nearest(name, plain)
	for i, k := range plain {
		if k == near || near == "" && min(len(k), len(name)) >= 3 && (strings.HasPrefix(k, name) || strings.HasPrefix(name, k)) {
			return known[i]
		}
	}
	return ""
}
