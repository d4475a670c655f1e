package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// outputFailed explains a process that dew stopped because its output was lost.
func outputFailed(f Facts) (Verdict, bool) {
	if f.First.Cause != OutputFailed {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    OutputFailed,
		Sentence: "dewd could not store the output of " + f.first() + " any more, and stopped the instance so that no line is lost",
		Advice:   "Check the free disk space of the machine, and the log of dewd",
	}
	if f.First.Detail != "" {
		v.Evidence = []string{quote(f.First.Detail)}
	}
	return v, true
}

// containerLost explains an instance whose container ended from outside.
func containerLost(f Facts) (Verdict, bool) {
	if f.First.Cause != ContainerLost {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    ContainerLost,
		Sentence: "the container of the instance ended, and its exit status is not known",
		Advice:   "Check whether something killed the containerd shim or the container's first process on this machine",
	}
	if f.First.Detail != "" {
		v.Evidence = []string{quote(f.First.Detail)}
	}
	return v, true
}

// removed explains an instance whose Pod was removed for a reason outside the app.
func removed(f Facts) (Verdict, bool) {
	if f.First.Cause != Removed {
		return Verdict{}, false
	}
	return Verdict{
		Class:    Removed,
		Sentence: "Kubernetes removed the Pod of the instance: " + quote(f.First.Detail),
		Advice:   "Nothing is wrong with the app. dewd starts the instance again at once, and this does not count as a crash",
	}, true
}

// evicted explains an instance that the cluster stopped because it used too much disk.
func evicted(f Facts) (Verdict, bool) {
	if f.First.Cause != DiskFull {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    DiskFull,
		Sentence: fmt.Sprintf("the instance used more than its %s disk limit, and Kubernetes stopped it", bytesText(f.Disk.Limit)),
		Advice:   diskAdvice(f.Disk),
	}
	if f.First.Detail != "" {
		v.Evidence = []string{quote(f.First.Detail)}
	}
	return v, true
}

func diskAdvice(d Disk) string {
	return fmt.Sprintf("Delete files that the app no longer needs, or set `disk_quota: %s` in the manifest", bytesText(2*d.Limit))
}

// Full reports whether all of the limit is used. A file that does not fit leaves a little
// space.
func (d Disk) Full() bool {
	return d.Limit > 0 && (d.NoFiles || d.Used >= d.Limit-d.Limit/100)
}

// noSpace are the messages of a write that the kernel refused.
var noSpace = []string{"no space left on device", "enospc", "disk quota exceeded"}

// refused reports whether a process said that it could not write, and so little space was
// left that a large write fails.
func (d Disk) refused(e Exit) bool {
	const largeWrite = 2<<20 + 64<<10
	if d.Limit == 0 || d.Limit-d.Used > min(largeWrite, d.Limit/8) {
		return false
	}
	text := strings.ToLower(strings.Join(e.lines(), "\n"))
	return slices.ContainsFunc(noSpace, func(s string) bool { return strings.Contains(text, s) })
}

// diskFull explains an exit of an instance that had used all of its disk limit.
func diskFull(f Facts) (Verdict, bool) {
	d := f.Disk
	if f.First.Cause != Exited || f.First.Code == 0 || !d.Full() && !d.refused(f.First) {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    DiskFull,
		Sentence: fmt.Sprintf("%s failed with status %d after the instance had used %s of its %s disk limit", f.first(), f.First.Code, bytesText(d.Used), bytesText(d.Limit)),
		Advice:   diskAdvice(d),
	}
	if d.NoFiles {
		v.Sentence = fmt.Sprintf("%s failed with status %d after the instance had created as many files as its %s disk limit allows", f.first(), f.First.Code, bytesText(d.Limit))
	}
	if d.Largest != "" {
		v.Sentence += fmt.Sprintf("; the largest directory is %s (%s)", quote(d.Largest), bytesText(d.Size))
	}
	if line := lastLine(f.First.Stderr); line != "" {
		v.Evidence = []string{"the last line that it wrote to standard error: " + quote(line)}
	}
	return v, true
}
