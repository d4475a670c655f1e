package console

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FirstSet is the first of the texts that is there.
func FirstSet(texts ...*string) string {
	for _, t := range texts {
		if t != nil {
			return *t
		}
	}
	return ""
}

// Mebibytes writes mebibytes as manifests do.
func Mebibytes(n int) string {
	if n != 0 && n%1024 == 0 {
		return strconv.Itoa(n/1024) + "G"
	}
	return strconv.Itoa(n) + "M"
}

// Bytes writes an amount of bytes for people.
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

// CompactJSON writes a value on one line, for people: commands have && in them.
func CompactJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// CrashCount is a number of crashes.
func CrashCount(n int) string {
	if n == 1 {
		return "1 crash"
	}
	return strconv.Itoa(n) + " crashes"
}

// NextStart says how long an instance waits before it is started again.
func NextStart(at, now time.Time) string {
	if left := at.Sub(now); left > 0 {
		return "next start in " + (left + time.Second - 1).Truncate(time.Second).String()
	}
	return "starts now"
}
