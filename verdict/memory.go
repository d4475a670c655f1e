package verdict

import (
	"fmt"
	"regexp"
	"strings"
)

// outOfMemory explains a process that the kernel's out-of-memory killer killed.
func outOfMemory(f Facts) (Verdict, bool) {
	e := f.First
	v := Verdict{Class: e.Cause}
	switch e.Cause {
	case MemoryProcess:
		v.Sentence = fmt.Sprintf("%s ran out of memory: it reached its limit of %s", f.first(), bytesText(e.Memory.Limit))
		if e.Memory.Limit == 0 {
			v.Sentence = f.first() + " ran out of memory"
		}
		v.Evidence = []string{fmt.Sprintf("the kernel killed a process of %s at its memory limit", f.first())}
		if e.Memory.Peak > 0 {
			v.Evidence = append(v.Evidence, "its peak memory was "+bytesText(e.Memory.Peak))
		}
		v.Advice = f.moreMemory(e.Memory.Limit)
	case MemoryInstance:
		v.Sentence = fmt.Sprintf("the instance ran out of memory: its processes together reached the limit of %s", bytesText(f.Memory.Limit))
		v.Evidence = []string{fmt.Sprintf("the kernel killed %s at the memory limit of the instance", f.first())}
		for _, p := range append([]Exit{e}, f.Followers...) {
			if p.Memory.Peak > 0 {
				v.Evidence = append(v.Evidence, fmt.Sprintf("peak memory of %s: %s", f.name(p), bytesText(p.Memory.Peak)))
			}
		}
		v.Advice = fmt.Sprintf("Set `memory` in the manifest to more than %s, or give each sidecar a `memory` of its own", bytesText(f.Memory.Limit))
	case MemoryHost:
		v.Sentence = fmt.Sprintf("this machine ran out of memory, and the kernel killed %s", f.first())
		v.Evidence = []string{f.first() + " had not reached its own memory limit"}
		v.Advice = "Stop other apps or programs, or use a machine with more memory"
	default:
		return Verdict{}, false
	}
	return v, true
}

// moreMemory is the advice to raise a limit. The new value is 1.5 times the old one.
func (f Facts) moreMemory(limit int64) string {
	if limit == 0 {
		return "Set " + f.memoryKey() + " in the manifest to a larger value"
	}
	more := bytesText((limit*3/2 + 1<<20 - 1) >> 20 << 20)
	if f.First.Sidecar != "" {
		return fmt.Sprintf("Set `memory: %s` for sidecar %s in the manifest. It is a part of the app's memory limit", more, f.First.Sidecar)
	}
	return fmt.Sprintf("Set `memory: %s` in the manifest, or run: dew scale %s -m %s", more, f.App, more)
}

// javaOOM is the line of a JVM that ran out of one kind of memory.
var javaOOM = regexp.MustCompile(`java\.lang\.OutOfMemoryError: (.+)`)

// javaMemory explains a JVM that reported an OutOfMemoryError and exited: with status 1
// if the error was not caught, with 3 under -XX:+ExitOnOutOfMemoryError, with 134 under
// -XX:+CrashOnOutOfMemoryError.
func javaMemory(f Facts) (Verdict, bool) {
	if f.First.Cause != Exited {
		return Verdict{}, false
	}
	line, m := findLine(f.First.lines(), javaOOM)
	if m == nil {
		return Verdict{}, false
	}
	kind, advice := m[1], ""
	evidence := []string{quote(line), statusText(f)}
	if limit := f.First.Memory.Limit; limit > 0 {
		evidence = append(evidence, fmt.Sprintf("the memory limit of %s is %s, and its peak memory was %s", f.first(), bytesText(limit), bytesText(f.First.Memory.Peak)))
	}
	switch {
	case hasPrefix(kind, "Java heap space", "GC overhead limit exceeded"):
		kind = "its heap" + f.javaHeap() + " is full"
		advice = f.moreMemory(f.First.Memory.Limit) + ". The heap grows with it. To set the heap alone, use -Xmx in JAVA_OPTS"
	case hasPrefix(kind, "Metaspace", "Compressed class space"):
		kind = "its metaspace is too small"
		advice = "Set a larger -XX:MaxMetaspaceSize in JAVA_OPTS, or remove it"
	case hasPrefix(kind, "unable to create native thread", "unable to create new native thread"):
		kind = "it could not create another thread"
		advice = "Use fewer threads, or set a larger `memory` in the manifest"
	case hasPrefix(kind, "Direct buffer memory", "Cannot reserve"):
		kind = "its direct memory is too small"
		advice = "Set a larger -XX:MaxDirectMemorySize in JAVA_OPTS"
	default:
		kind, advice = quote(kind), "Set a larger `memory` in the manifest"
	}
	return Verdict{
		Class: Exited, Sentence: fmt.Sprintf("the JVM of %s ran out of memory: %s", f.first(), kind),
		Evidence: evidence, Advice: advice,
	}, true
}

// javaHeap is the size of the heap, with the word "of", if a JVM printed its options.
func (f Facts) javaHeap() string {
	if _, m := findLine(f.First.lines(), javaMaxHeap); m != nil {
		return " of " + strings.ToUpper(m[1])
	}
	return ""
}

var javaMaxHeap = regexp.MustCompile(`-Xmx(\d+[kKmMgG])\b`)

// javaOptions explains a JVM that refused its memory options.
func javaOptions(f Facts) (Verdict, bool) {
	if f.First.Cause != Exited || f.First.Code != 1 {
		return Verdict{}, false
	}
	line, m := findLine(f.First.lines(), javaRefused)
	if m == nil {
		return Verdict{}, false
	}
	return Verdict{
		Class: Exited, Sentence: fmt.Sprintf("the JVM of %s did not start: %s", f.first(), quote(line)),
		Evidence: []string{statusText(f)}, Advice: "Correct JAVA_OPTS, or set a larger `memory` in the manifest",
	}, true
}

var javaRefused = regexp.MustCompile(`^(Error occurred during initialization of VM|Unrecognized VM option .*|Invalid (maximum|initial) heap size.*|Could not reserve enough space.*|Too small (maximum|initial) heap.*)`)

var nodeOOM = regexp.MustCompile(`FATAL ERROR: .*(heap limit|JavaScript heap out of memory)`)

// nodeMemory explains a Node.js process that reached its heap limit, which aborts it
// with status 134.
func nodeMemory(f Facts) (Verdict, bool) {
	if f.First.Cause != Exited && f.First.Cause != Signaled {
		return Verdict{}, false
	}
	line, m := findLine(f.First.lines(), nodeOOM)
	if m == nil {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    Exited,
		Sentence: "Node.js of " + f.first() + " reached its heap limit",
		Evidence: []string{quote(line), statusText(f)},
		Advice:   "Set a larger heap with NODE_OPTIONS=--max-old-space-size=MEGABYTES, and `memory` in the manifest above it",
	}
	if limit := f.First.Memory.Limit; limit > 0 {
		v.Evidence = append(v.Evidence, fmt.Sprintf("the memory limit is %s", bytesText(limit)))
		v.Advice = fmt.Sprintf("Set NODE_OPTIONS=--max-old-space-size=%d (three quarters of the memory limit), or a larger `memory` in the manifest", limit>>20*3/4)
	}
	return v, true
}
