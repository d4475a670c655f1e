package console

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FirstSet is the first text that is not nil.
func FirstSet(texts ...*string) string {
	for _, t := range texts {
		if t != nil {
			return *t
		}
	}
	return ""
}

// Mebibytes writes an amount of mebibytes as in manifests: 64M, 1G.
func Mebibytes(n int) string {
	if n != 0 && n%1024 == 0 {
		return strconv.Itoa(n/1024) + "G"
	}
	return strconv.Itoa(n) + "M"
}

// Bytes writes an amount of bytes with its unit.
func Bytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
		if n >= u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// CompactJSON writes a value as JSON on one line. It does not escape characters such as
// &, which occur in commands.
func CompactJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// CrashCount writes a number of crashes.
func CrashCount(n int) string {
	if n == 1 {
		return "1 crash"
	}
	return strconv.Itoa(n) + " crashes"
}

// NextStart says when an instance starts again.
func NextStart(at, now time.Time) string {
	if left := at.Sub(now); left > 0 {
		return "next start in " + (left + time.Second - 1).Truncate(time.Second).String()
	}
	return "starts now"
}
