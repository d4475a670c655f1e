package app

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var amount = regexp.MustCompile(`^([0-9]{1,15}(?:\.[0-9]{1,15})?)([KMGT])B?$`)

// bytesPer has the units of Cloud Foundry, which are powers of 1024.
var bytesPer = map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

// MaxMB keeps every amount in bytes well inside an int64.
const MaxMB = 1 << 30

// ParseMB reads an amount of memory or disk with its unit, such as 64M, 512mb or
// 1.5G, in mebibytes, rounded down.
func ParseMB(s string) (int, error) {
	m := amount.FindStringSubmatch(strings.ToUpper(s))
	if m == nil {
		return 0, fmt.Errorf("%q is not a valid amount: write a number with the unit K, M, G or T, such as 64M or 1G", s)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a valid amount: %w", s, err)
	}
	mb := n * bytesPer[m[2]] / bytesPer["M"]
	if mb < 1 {
		return 0, fmt.Errorf("%q is less than 1M, the smallest amount", s)
	}
	if mb > MaxMB {
		return 0, fmt.Errorf("%q is more than %dT, the largest amount", s, MaxMB>>20)
	}
	return int(mb), nil
}

var rate = regexp.MustCompile(`^([0-9]{1,15}(?:\.[0-9]{1,15})?)(?:B|([KMGT])B?)$`)

// ParseRate reads an amount of log per second in bytes, such as 512B, 16K or
// 1.5MB. -1 stands for no limit, and 0 for no output.
func ParseRate(s string) (int64, error) {
	if s == "-1" || s == "0" {
		return strconv.ParseInt(s, 10, 64)
	}
	m := rate.FindStringSubmatch(strings.ToUpper(s))
	if m == nil {
		return 0, fmt.Errorf("%q is not a valid log rate limit: write a number of bytes per second with the unit B, K, M or G, such as 16K, or -1 for no limit", s)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a valid amount: %w", s, err)
	}
	if m[2] != "" {
		n *= bytesPer[m[2]]
	}
	if n > MaxMB*bytesPer["M"] {
		return 0, fmt.Errorf("%q is more than %dT, the largest amount", s, MaxMB>>20)
	}
	return int64(n), nil
}

// formatRate formats a rate as ParseRate parses it. Nil means no limit.
func formatRate(n *int64) any {
	switch {
	case n == nil:
		return -1
	case *n == 0:
		return 0
	}
	v, unit := *n, "B"
	for _, next := range []string{"K", "M", "G", "T"} {
		if v%1024 != 0 {
			break
		}
		v, unit = v/1024, next
	}
	return strconv.FormatInt(v, 10) + unit
}

// FormatMB writes a number of megabytes as ParseMB reads it.
func FormatMB(mb int) string { return fmt.Sprintf("%dM", mb) }
