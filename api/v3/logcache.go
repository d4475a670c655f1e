package v3

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// LogCacheInfo is the response of GET /api/v1/info.
type LogCacheInfo struct {
	Version string `json:"version"`
}

// LogCacheRead is the response of GET /api/v1/read/:source. Clients refuse every field
// that they do not know, so it has no fields of dew's own.
type LogCacheRead struct {
	Envelopes LogCacheBatch `json:"envelopes"`
}

// LogCacheBatch is a batch of envelopes.
type LogCacheBatch struct {
	Batch []LogCacheEnvelope `json:"batch"`
}

// LogCacheEnvelope is one log line.
type LogCacheEnvelope struct {
	Timestamp  int64             `json:"timestamp,string"` // nanoseconds
	SourceID   string            `json:"source_id"`
	InstanceID string            `json:"instance_id"` // instance index as text
	Tags       map[string]string `json:"tags,omitempty"`
	Log        *LogCacheLog      `json:"log,omitempty"`
}

// PromQLResponse is the response of GET /api/v1/query and /api/v1/query_range.
type PromQLResponse struct {
	Status string     `json:"status"`
	Data   PromQLData `json:"data"`
}

// PromQLData is a result in the form of Prometheus.
type PromQLData struct {
	ResultType string         `json:"resultType"` // vector or matrix
	Result     []PromQLSeries `json:"result"`
}

// PromQLSeries has one value of a series, or many. Each is a pair of seconds since 1970
// and text.
type PromQLSeries struct {
	Metric map[string]string `json:"metric"`
	Value  json.RawMessage   `json:"value,omitempty"`
	Values []json.RawMessage `json:"values,omitempty"`
}

// PromQLError is the error of a query.
type PromQLError struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
}

// GatewayBatch is one event of GET /v2/read: envelopes as Cloud Foundry's log stream
// gateway sends them, with all fields.
type GatewayBatch struct {
	Batch []GatewayEnvelope `json:"batch"`
}

// GatewayError is an error response of GET /v2/read.
type GatewayError struct {
	Message string `json:"message"`
	Error   string `json:"error"`
}

// GatewayEnvelope has a log line, the metrics of an instance, or the time of a request.
type GatewayEnvelope struct {
	Timestamp      int64             `json:"timestamp,string"` // nanoseconds
	SourceID       string            `json:"source_id"`
	InstanceID     string            `json:"instance_id"` // instance index as text
	DeprecatedTags struct{}          `json:"deprecated_tags"`
	Tags           map[string]string `json:"tags"`
	Log            *LogCacheLog      `json:"log,omitempty"`
	Gauge          *Gauge            `json:"gauge,omitempty"`
	Timer          *Timer            `json:"timer,omitempty"`
}

// Gauge has metrics by name.
type Gauge struct {
	Metrics map[string]GaugeValue `json:"metrics"`
}

// GaugeValue is the value of a metric.
type GaugeValue struct {
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

// Timer has the start and the end of a request, in nanoseconds.
type Timer struct {
	Name  string `json:"name"`
	Start int64  `json:"start,string"`
	Stop  int64  `json:"stop,string"`
}

// LogCacheMeta is the response of GET /api/v1/meta.
type LogCacheMeta struct {
	Meta map[string]LogCacheSource `json:"meta"`
}

// LogCacheSource is the number and time range of a source's stored lines.
type LogCacheSource struct {
	Count   int64 `json:"count,string"`
	Expired int64 `json:"expired,string"`
	Oldest  int64 `json:"oldest_timestamp,string"` // nanoseconds
	Newest  int64 `json:"newest_timestamp,string"`
}

// LogCacheLog is the line itself.
type LogCacheLog struct {
	Payload []byte `json:"payload"` // base64 on the wire
	Type    string `json:"type"`    // OUT, ERR
}

// The flags of a Line.
const (
	FlagLate    = "late"    // read after a daemon restart, so the time is an estimate
	FlagCut     = "cut"     // continues in the next line
	FlagPartial = "partial" // the process exited without a final newline
	FlagGap     = "gap"     // not a line: the text says which lines are missing and why
)

// Line is the data of one event of GET /stream/v1/apps/:guid; its id is Seq.
type Line struct {
	Seq      uint64
	Time     time.Time
	Source   string // APP/PROC/WEB/SIDECAR/CONFIG SERVER
	Index    int
	Instance string // empty for the platform's own lines
	Stream   string // OUT, ERR
	Flags    []string
	Text     []byte // any bytes
	Lost     *Loss  // the missing lines, with FlagGap
}

// Loss holds the number of missing lines and bytes, and the cause.
type Loss struct {
	Lines int64  `json:"lines,omitempty"` // 0 means unknown
	Bytes int64  `json:"bytes,omitempty"`
	Cause string `json:"cause"`
}

// LogReport is the response of GET /stream/v1/apps/:guid/verify.
type LogReport struct {
	OK       bool     `json:"ok"`
	Segments int      `json:"segments"`
	Frames   int      `json:"frames"`
	Lines    int64    `json:"lines"`
	Bytes    int64    `json:"bytes"`
	Streams  int      `json:"streams"`
	Gaps     int      `json:"gaps"`
	Lost     int64    `json:"lost"` // missing lines according to the gap records
	First    uint64   `json:"first"`
	Last     uint64   `json:"last"`
	Problems []string `json:"problems"`
}

// lineJSON is a Line on the wire. Text that is not UTF-8 is base64, and Encoding says
// so.
type lineJSON struct {
	Seq      uint64    `json:"seq,omitempty"`
	Time     time.Time `json:"time"`
	Source   string    `json:"source"`
	Index    int       `json:"index"`
	Instance string    `json:"instance,omitempty"`
	Stream   string    `json:"stream"`
	Flags    []string  `json:"flags,omitempty"`
	Text     string    `json:"text"`
	Encoding string    `json:"encoding,omitempty"` // base64
	Lost     *Loss     `json:"lost,omitempty"`
}

// MarshalJSON returns the line as one JSON object without a newline.
func (l Line) MarshalJSON() ([]byte, error) {
	j := lineJSON{
		Seq: l.Seq, Time: l.Time, Source: l.Source, Index: l.Index, Instance: l.Instance,
		Stream: l.Stream, Flags: l.Flags, Text: string(l.Text), Lost: l.Lost,
	}
	if !utf8.Valid(l.Text) {
		j.Text, j.Encoding = base64.StdEncoding.EncodeToString(l.Text), "base64"
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads the output of MarshalJSON.
func (l *Line) UnmarshalJSON(b []byte) error {
	var j lineJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	text := []byte(j.Text)
	switch j.Encoding {
	case "":
	case "base64":
		var err error
		if text, err = base64.StdEncoding.DecodeString(j.Text); err != nil {
			return fmt.Errorf("cannot read the text of line %d: %w", j.Seq, err)
		}
	default:
		return fmt.Errorf("cannot read the text of line %d: its encoding is %q", j.Seq, j.Encoding)
	}
	*l = Line{
		Seq: j.Seq, Time: j.Time, Source: j.Source, Index: j.Index, Instance: j.Instance,
		Stream: j.Stream, Flags: j.Flags, Text: text, Lost: j.Lost,
	}
	return nil
}
