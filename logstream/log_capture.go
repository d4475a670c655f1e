package logstream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CapturePath is the path of the capture file for one stream of an exec.
func (l *Log) CapturePath(instance, exec string, s Stream) string {
	return filepath.Join(l.CaptureDir(instance), exec+s.suffix())
}

// CaptureDir is the folder of an instance's capture files.
func (l *Log) CaptureDir(instance string) string {
	return filepath.Join(l.dir, "capture", instance)
}

// CreateCapture creates the two capture files of an exec, empty and readable only by
// root, and returns their paths. It does not change existing files: a process could be
// writing to them.
func (l *Log) CreateCapture(instance, exec string) (out, err string, _ error) {
	if e := errors.Join(checkName(instance), checkName(exec)); e != nil {
		return "", "", fmt.Errorf("cannot create capture files for process %q of instance %q: %w", exec, instance, e)
	}
	if e := os.MkdirAll(l.CaptureDir(instance), 0o700); e != nil {
		return "", "", fmt.Errorf("cannot create the capture folder: %w", e)
	}
	out, err = l.CapturePath(instance, exec, Out), l.CapturePath(instance, exec, Err)
	for _, path := range []string{out, err} {
		f, e := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
		if e == nil {
			e = f.Close()
		}
		if e != nil {
			return "", "", fmt.Errorf("cannot create a capture file: %w", e)
		}
	}
	return out, err, nil
}

// Captures returns the instances that have capture folders.
func (l *Log) Captures() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(l.dir, "capture"))
	if err != nil {
		return nil, fmt.Errorf("cannot list captures: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// RemoveCapture removes the capture files of an instance that no longer exists. Unread
// bytes are deleted with them, and the log records how many.
func (l *Log) RemoveCapture(instance string) error {
	if err := checkName(instance); err != nil {
		return fmt.Errorf("cannot remove captures of %q: %w", instance, err)
	}
	dir := l.CaptureDir(instance)
	for _, t := range l.logs.openTails() {
		if filepath.Dir(t.path) == dir {
			t.Close()
		}
	}
	var err error
	if unread := l.Unread(instance); unread > 0 {
		text := fmt.Sprintf("%d bytes of output of instance %s were deleted before dewd read them", unread, instance)
		err = l.Append(gapLine(Source{Type: sourceCell}, Loss{Bytes: unread, Cause: LostUnread}, text))
	}
	if e := os.RemoveAll(dir); e != nil {
		return errors.Join(err, fmt.Errorf("cannot remove captures: %w", e))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.streams {
		if k.Instance == instance {
			delete(l.streams, k)
		}
	}
	return err
}

// Unread counts the bytes of an instance's capture files that are not in the log.
func (l *Log) Unread(instance string) int64 {
	entries, err := os.ReadDir(l.CaptureDir(instance))
	if err != nil {
		return 0 // no folder, so nothing is unread
	}
	var n int64
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		for _, s := range []Stream{Out, Err} {
			if exec, ok := strings.CutSuffix(e.Name(), s.suffix()); ok {
				n += max(0, st.Size()-l.offset(streamKey{instance, exec, s}))
			}
		}
	}
	return n
}

// offset is how far a capture file has been read into the log.
func (l *Log) offset(k streamKey) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[k]; s != nil {
		return s.offset
	}
	return 0
}

// synced is how far a capture file is in the log and synced to disk.
func (l *Log) synced(k streamKey) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[k]; s != nil {
		return s.synced
	}
	return 0
}
