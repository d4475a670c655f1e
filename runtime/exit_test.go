package runtime

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFirstToEnd(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	const ms = time.Millisecond
	exit := func(exec string, d time.Duration) Exit {
		return Exit{Exec: exec, Cause: CauseExited, At: at(d)}
	}
	oom := func(exec string, d time.Duration) Exit {
		return Exit{Exec: exec, OOM: true, Cause: CauseOutOfMemory, At: at(d)}
	}
	lost := func(exec string, d time.Duration) Exit {
		return Exit{Exec: exec, Cause: CauseRuntimeLost, Code: -1, At: at(d)}
	}
	gone := func(exec string, d time.Duration) Exit {
		return Exit{Exec: exec, Cause: CauseInitExited, At: at(d)}
	}
	exact := func(exec string, d time.Duration) Exit {
		return Exit{Exec: exec, Cause: CauseExited, At: at(d), Exact: true}
	}
	for _, c := range []struct {
		name  string
		exits []Exit
		want  string
		order Order
	}{
		{"alone", []Exit{exit("main", 0)}, "main", ""},
		{"smallest time", []Exit{exit("main", 0), exit("sidecar-0", 20*ms)}, "main", ""},
		{"exactly 5 ms is not together", []Exit{exit("main", 0), exit("sidecar-0", 5*ms)}, "main", ""},
		{"together: sidecar before main", []Exit{exit("main", 0), exit("sidecar-0", 4*ms)}, "sidecar-0", OrderTogether},
		{"together: out of memory before all", []Exit{exit("sidecar-0", 0), oom("main", 4*ms)}, "main", OrderTogether},
		{"out of memory later is later", []Exit{exit("sidecar-0", 0), oom("main", 6*ms)}, "sidecar-0", ""},
		{"together: earlier of two sidecars", []Exit{exit("sidecar-1", 0), exit("sidecar-0", 1*ms)}, "sidecar-1", OrderTogether},
		{"same time: by exec", []Exit{exit("sidecar-1", 0), exit("sidecar-0", 0)}, "sidecar-0", OrderTogether},
		{"a third one is not together", []Exit{exit("main", 0), exit("sidecar-0", 3*ms), exit("sidecar-1", 7*ms)}, "sidecar-0", OrderTogether},
		{"init beats an earlier exit", []Exit{exit("sidecar-0", 0), gone("main", 90*ms)}, "main", ""},
		{"init took all along", []Exit{gone("main", 0), gone("sidecar-0", 1*ms)}, "main", ""},
		{"lost with the shim: the container", []Exit{lost("sidecar-0", 0), lost("main", 1*ms)}, "main", ""},
		{"exact: main a little before", []Exit{exact("main", 0), exact("sidecar-0", 1*ms)}, "main", OrderTogether},
		{"exact: too close to tell", []Exit{exact("main", 0), exact("sidecar-0", clockError)}, "sidecar-0", OrderTogether},
		{"exact, but one is not", []Exit{exact("main", 0), exit("sidecar-0", 1*ms)}, "sidecar-0", OrderTogether},
		{"exact behind a lost one", []Exit{lost("sidecar-1", 0), exact("main", 1*ms), exact("sidecar-0", 3*ms)}, "main", OrderTogether},
		{"lost is never named before one with a status", []Exit{lost("sidecar-0", 0), exit("main", 1*ms)}, "main", OrderTogether},
	} {
		got, order := FirstExit(c.exits, 5*ms)
		if got.Exec != c.want || order != c.order {
			t.Errorf("%s: first = %s, order %q, want %s, %q", c.name, got.Exec, order, c.want, c.order)
		}
		if earliest := earliestOf(c.exits); !got.At.Equal(earliest) {
			t.Errorf("%s: first at %v, want %v: no follower is earlier", c.name, got.At, earliest)
		}
	}
}

// The result is the same for every order of the reports. No process exited 5 ms or more
// before the chosen one, unless the container's first process is the cause.
func TestFirstToEndIgnoresTheOrderOfReports(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	execs := []string{MainExec, "sidecar-0", "sidecar-1", "sidecar-2"}
	for range 2000 {
		var exits []Exit
		for _, exec := range execs[:1+r.IntN(len(execs))] {
			e := Exit{Exec: exec, Cause: CauseExited, At: time.Unix(1000, r.Int64N(int64(15*time.Millisecond))), Exact: r.IntN(2) == 0}
			switch r.IntN(6) {
			case 0:
				e.OOM, e.Cause = true, CauseOutOfMemory
			case 1:
				e.Cause = CauseInitExited
			case 2:
				e.Cause, e.Code = CauseRuntimeLost, -1
			}
			exits = append(exits, e)
		}
		want, order := FirstExit(exits, 5*time.Millisecond)
		named := exits[slices.IndexFunc(exits, func(e Exit) bool { return e.Exec == want.Exec })]
		for _, e := range exits {
			if want.Cause != CauseInitExited && named.At.Sub(e.At) >= 5*time.Millisecond {
				t.Fatalf("first of %v is %s, but %s ended 5 ms before", exits, want.Exec, e.Exec)
			}
		}
		for range 10 {
			r.Shuffle(len(exits), func(i, j int) { exits[i], exits[j] = exits[j], exits[i] })
			if got, o := FirstExit(exits, 5*time.Millisecond); got != want || o != order {
				t.Fatalf("first of %v = %s %q, in another order %s %q", exits, got.Exec, o, want.Exec, order)
			}
		}
	}
}

func TestExitDescription(t *testing.T) {
	t.Parallel()
	const web, side = "APP/PROC/WEB", "APP/PROC/WEB/SIDECAR/CONFIG SERVER"
	for _, c := range []struct {
		exit Exit
		want string
	}{
		{Exit{Source: side, Code: 137, Cause: CauseExited}, side + ": Exited with status 137"},
		{Exit{Source: web, Code: 0, Cause: CauseExited}, web + ": Exited with status 0"},
		{Exit{Source: side, Code: 137, OOM: true, Cause: CauseOutOfMemory}, side + ": Exited with status 137 (out of memory)"},
		{Exit{Source: web, Code: 3, OOM: true, Cause: CauseOutOfMemory}, web + ": Exited with status 3 (out of memory)"},
		{Exit{Source: web, Code: 127, Cause: CauseStartFailed, Detail: "the command was not found"}, web + ": Exited with status 127"},
		{Exit{Source: web, Code: -1, Cause: CauseStartFailed, Detail: "no such image"}, web + ": cannot start: no such image"},
		{Exit{Source: web, Code: -1, Cause: CauseUnhealthy, Detail: "port check failed: refused"}, web + ": Instance became unhealthy: port check failed: refused"},
		{Exit{Source: web, Code: -1, Cause: CauseStartTimeout, Detail: "never healthy after 1m0s: port check failed"}, web + ": Instance never healthy after 1m0s: port check failed"},
		{Exit{Source: web, Code: 137, Cause: CauseInitExited}, web + ": Container ended: its first process exited"},
		{Exit{Source: web, Code: -1, Cause: CauseRuntimeLost}, web + ": Container lost: its shim is gone, and the exit status with it"},
		{Exit{Source: web, Code: 137, Cause: CauseCaptureFailed, Detail: "no space left"}, web + ": Output could not be taken any more: no space left"},
		{Exit{Source: web, Code: 137, Cause: CauseCaptureFailed}, web + ": Output could not be taken any more"},
	} {
		if got := c.exit.Description(); got != c.want {
			t.Errorf("description = %q, want %q", got, c.want)
		}
	}
}

func TestProbableSignal(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]int{0: 0, 3: 0, 127: 0, 128: 0, 129: 1, 137: 9, 139: 11, 143: 15, 192: 64, 193: 0, 255: 0, -1: 0} {
		if got := (Exit{Code: code}).ProbableSignal(); got != want {
			t.Errorf("signal of %d = %d, want %d", code, got, want)
		}
	}
}

// A shell that does not find its command is a failed start, but only while the instance
// is starting.
func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		exit   Exit
		phase  Phase
		cause  Cause
		detail string
	}{
		{Exit{Code: 127, Cause: CauseExited}, PhaseStarting, CauseStartFailed, "the command was not found"},
		{Exit{Code: 126, Cause: CauseExited}, PhaseStarting, CauseStartFailed, "the command cannot be executed"},
		{Exit{Code: 127, Cause: CauseExited}, PhaseRunning, CauseExited, ""},
		{Exit{Code: 127, Cause: CauseExited}, PhaseUnwatched, CauseExited, ""},
		{Exit{Code: 127, OOM: true, Cause: CauseOutOfMemory}, PhaseStarting, CauseOutOfMemory, ""},
		{Exit{Code: 1, Cause: CauseExited}, PhaseStarting, CauseExited, ""},
	} {
		got := ClassifyExit(c.exit, c.phase)
		if got.Cause != c.cause || got.Detail != c.detail {
			t.Errorf("classify(%d, %s) = %s %q, want %s %q", c.exit.Code, c.phase, got.Cause, got.Detail, c.cause, c.detail)
		}
	}
}

func testRecord() ExitRecord {
	return ExitRecord{
		Slot: SlotID{Process: "app-1", Index: 0}, App: "app-1", Type: "web",
		Instance: "01234567-89ab-cdef-0123-4567", Cell: "cell-1", Version: "version-1",
		Reason:      ReasonCrashed,
		Description: "APP/PROC/WEB/SIDECAR/CONFIG SERVER: Exited with status 137",
		CrashCount:  1, CrashedAt: time.Unix(0, 1763160000123456789),
	}
}

// The line has exactly the eight fields, in their order, and is valid JSON for every
// app name.
func TestExitRecordLine(t *testing.T) {
	t.Parallel()
	odd := testRecord()
	odd.Description = "APP/PROC/WEB/SIDECAR/A \"B\" <C> \\ Ü\n: Exited with status 0"
	golden(t, "exit-record.txt", testRecord().Line()+"\n"+odd.Line()+"\n")

	_, text, ok := strings.Cut(odd.Line(), "App instance exited with guid app-1 payload: ")
	if !ok || strings.Contains(text, "\n") {
		t.Fatalf("line = %q, want one line with the introduction", odd.Line())
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	if len(fields) != 8 || fields["exitdescription"] != odd.Description {
		t.Errorf("payload = %v, want eight fields and the description unchanged", fields)
	}
}

// A follower exited because of the first exit, unless the clocks contradict that.
func TestFollow(t *testing.T) {
	t.Parallel()
	base := time.Unix(1000, 0)
	exit := func(exec string, cause Cause, d time.Duration) Exit {
		return Exit{Exec: exec, Cause: cause, At: base.Add(d)}
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		first Exit
		next  Exit
		cause Cause
		order Order
	}{
		{"later", exit("sidecar-0", CauseExited, 0), exit("main", CauseExited, 20*ms), CausePeerExited, ""},
		{"together", exit("sidecar-0", CauseExited, 0), exit("main", CauseExited, -4*ms), CauseExited, OrderTogether},
		{"known too late", exit("sidecar-0", CauseExited, 0), exit("main", CauseOutOfMemory, -20*ms), CauseOutOfMemory, OrderLate},
		{"init", exit("main", CauseInitExited, 0), exit("sidecar-0", CauseExited, -2*ms), CausePeerExited, ""},
		{"init known too late", exit("main", CauseExited, 0), exit(InitExec, CauseInitExited, 9*ms), CauseInitExited, OrderLate},
		{"sick main", exit("main", CauseUnhealthy, 0), exit("main", CauseExited, 1*ms), CauseUnhealthy, ""},
		{"beside sick main", exit("main", CauseUnhealthy, 0), exit("sidecar-0", CauseExited, 1*ms), CausePeerExited, ""},
	} {
		r := ExitRecord{First: c.first}
		r.Follow(c.next, 5*ms)
		if got := r.Followers[0].Cause; got != c.cause || r.Order != c.order {
			t.Errorf("%s: cause %s, order %q, want %s, %q", c.name, got, r.Order, c.cause, c.order)
		}
		if !r.Has(c.next.Exec) {
			t.Errorf("%s: the record does not know the end of %s", c.name, c.next.Exec)
		}
	}
}

func TestExitLogKeepsTheNewest(t *testing.T) {
	t.Parallel()
	l := NewExitLog(testDB(t), 0)
	other := testRecord()
	other.Slot.Index = 10 // has the prefix of slot 1
	if _, err := l.Add(other); err != nil {
		t.Fatal(err)
	}
	id := SlotID{Process: "app-1", Index: 1}
	for n := range DefaultCrashRecords + 7 {
		r := testRecord()
		r.Slot, r.Instance, r.CrashCount = id, NewInstanceID(), n+1
		if got, err := l.Add(r); err != nil || got.Number != uint64(n+1) {
			t.Fatalf("Add = number %d, %v, want %d", got.Number, err, n+1)
		}
	}
	rs, err := l.Slot(id)
	if err != nil || len(rs) != DefaultCrashRecords {
		t.Fatalf("kept %d records, %v, want %d", len(rs), err, DefaultCrashRecords)
	}
	if rs[0].Number != 8 || rs[len(rs)-1].Number != DefaultCrashRecords+7 {
		t.Errorf("kept %d to %d, want 8 to %d", rs[0].Number, rs[len(rs)-1].Number, DefaultCrashRecords+7)
	}
	if rs, err := l.Slot(other.Slot); err != nil || len(rs) != 1 {
		t.Errorf("the other slot has %d records, %v, want 1", len(rs), err)
	}
}

// The limit is a setting. A higher limit keeps the existing records, and a lower one
// deletes the extra records at the next crash.
func TestExitLogBoundChanges(t *testing.T) {
	t.Parallel()
	db := testDB(t)
	id := testRecord().Slot
	for _, tt := range []struct{ kept, adds, want int }{{5, 8, 5}, {9, 3, 8}, {9, 3, 9}, {2, 1, 2}, {1, 1, 1}, {3, 1, 2}} {
		l := NewExitLog(db, tt.kept)
		var last ExitRecord
		for range tt.adds {
			r := testRecord()
			r.Instance = NewInstanceID()
			var err error
			if last, err = l.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		rs, err := l.Slot(id)
		if err != nil || len(rs) != tt.want || rs[len(rs)-1].Number != last.Number {
			t.Errorf("bound %d after %d more: %d records, %v, want the newest %d", tt.kept, tt.adds, len(rs), err, tt.want)
		}
	}
}

// A store can report an error although the write took effect. The second try replaces
// the record of the instance, and other instances and slots keep theirs.
func TestExitLogHasOneRecordPerInstance(t *testing.T) {
	t.Parallel()
	l := NewExitLog(testDB(t), 0)
	add := func(r ExitRecord) ExitRecord {
		t.Helper()
		r, err := l.Add(r)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	earlier, r, other := testRecord(), testRecord(), testRecord()
	earlier.Instance, other.Slot.Index = NewInstanceID(), 1
	add(earlier)
	add(r)
	if err := l.ResetCount(r.Slot); err != nil { // the user asks for a restart between the tries
		t.Fatal(err)
	}
	r.Complete = true
	second := add(r)
	add(other)
	rs, err := l.Slot(r.Slot)
	if err != nil || len(rs) != 2 || second.Number != 2 {
		t.Fatalf("the slot has %d records, the second try has number %d, %v, want 2 and 2", len(rs), second.Number, err)
	}
	if rs[0].Instance != earlier.Instance || !rs[1].Complete || rs[1].CrashesInARow() != 0 {
		t.Errorf("records = %+v, want the earlier one and the second try, with the count reset", rs)
	}
	if got, err := l.Process(r.Slot.Process); err != nil || len(got) != 3 {
		t.Errorf("the process has %d records, %v, want 3", len(got), err)
	}
}

// A record that is completed after the crash count was reset does not bring the count back.
func TestReplaceKeepsTheReset(t *testing.T) {
	t.Parallel()
	l := NewExitLog(testDB(t), 0)
	r, err := l.Add(testRecord())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.ResetCount(r.Slot); err != nil {
		t.Fatal(err)
	}
	r.Complete = true
	if err := l.Replace(r); err != nil {
		t.Fatal(err)
	}
	if got, _, err := l.Newest(r.Slot); err != nil || !got.Complete || got.CrashesInARow() != 0 {
		t.Errorf("newest = %+v, %v, want it complete, with a count that starts over", got, err)
	}
}

func TestExitLogResetsCount(t *testing.T) {
	t.Parallel()
	l := NewExitLog(testDB(t), 0)
	r := testRecord()
	if err := l.ResetCount(r.Slot); err != nil {
		t.Fatalf("ResetCount without records: %v", err)
	}
	if _, err := l.Add(r); err != nil {
		t.Fatal(err)
	}
	if err := l.ResetCount(r.Slot); err != nil {
		t.Fatal(err)
	}
	got, ok, err := l.Newest(r.Slot)
	if err != nil || !ok || got.CrashesInARow() != 0 || got.CrashCount != 1 {
		t.Errorf("newest = %+v, %v, %v, want a count that starts over", got, ok, err)
	}
}

func TestExitLogRemovesDeletedProcesses(t *testing.T) {
	t.Parallel()
	l := NewExitLog(testDB(t), 0)
	for _, process := range []string{"p1", "p10", "p2"} {
		r := testRecord()
		r.Slot.Process = process
		if _, err := l.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Remove("p1"); err != nil {
		t.Fatal(err)
	}
	got, err := l.Processes()
	if diff := cmp.Diff(got, []string{"p10", "p2"}); err != nil || diff != "" {
		t.Errorf("processes with records: %v (-got +want):\n%s", err, diff)
	}
	gone := testRecord()
	gone.Slot.Process, gone.Number = "p1", 1
	if err := l.Replace(gone); err != nil {
		t.Errorf("Replace of a dropped record: %v", err)
	}
	if rs, err := l.Process("p1"); err != nil || len(rs) != 0 {
		t.Errorf("p1 has %d records again, %v", len(rs), err)
	}
}

// After the clock was set back, the newest record of a slot is still the last one. Other
// slots keep their times.
func TestCrashOrder(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	record := func(index int, number uint64, at time.Time) ExitRecord {
		return ExitRecord{Slot: SlotID{Process: "p", Index: index}, Number: number, CrashedAt: at}
	}
	records := []ExitRecord{
		record(0, 2, noon), record(0, 1, noon.Add(time.Hour)), record(0, 3, noon.Add(2*time.Hour)), record(1, 1, noon.Add(time.Minute)),
	}
	got := CrashOrder(records)
	want := map[RecordID]time.Time{
		{records[0].Slot, 1}: noon.Add(time.Hour), {records[0].Slot, 2}: noon.Add(time.Hour + 1),
		{records[0].Slot, 3}: noon.Add(2 * time.Hour), {records[3].Slot, 1}: noon.Add(time.Minute),
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("order (-got +want):\n%s", diff)
	}
}
