package command

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/dewrun/dew/cli/console"
)

// ReadTime reads a time that a user typed: a duration before now, a time of day, or a
// date.
func ReadTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if d, err := time.ParseDuration(days + "h"); err == nil && d >= 0 && d < maxDays*time.Hour {
			return now.Add(-24 * d), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil && t.Year() >= 1970 && t.Year() < 2262 {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1) // the time is always in the past
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time: use 10m, 3d, 15:04, 2006-01-02 or 2006-01-02T15:04:05Z", text)
}

const maxDays = 100 * 366

// maxObject is the maximum size of a file of parameters or credentials.
const maxObject = 1 << 20

// ReadJSONObject reads a JSON object from the command line, or from the file that it
// names. It is nil if text is empty.
func ReadJSONObject(flag, text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	b := []byte(text)
	if !strings.HasPrefix(text, "{") {
		var err error
		if b, err = ReadSmallFile(text); err != nil {
			return nil, console.UsageError("%s must be a JSON object such as {\"name\":\"value\"}, or the name of a file with one: %w", flag, err)
		}
	}
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil || object == nil {
		return nil, console.UsageError("%s must be a JSON object such as {\"name\":\"value\"}: %w", flag, cmp.Or(err, errors.New("it is null")))
	}
	return b, nil
}

// ReadSmallFile reads a file. The error does not contain the name, because the user can
// have typed a secret instead of a name.
func ReadSmallFile(name string) ([]byte, error) {
	b, err := func() ([]byte, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxObject+1))
	}()
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return nil, e.Err
	}
	if err == nil && len(b) > maxObject {
		err = fmt.Errorf("the file is larger than %s", console.Bytes(maxObject))
	}
	return b, err
}
