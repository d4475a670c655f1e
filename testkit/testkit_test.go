package testkit

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	odd := errors.New("odd")
	for _, tt := range []struct {
		name  string
		ok    func(looks int) error
		want  error
		waits bool // until Patience has passed
	}{
		{"at once", func(int) error { return nil }, nil, false},
		{"after some looks", func(looks int) error {
			if looks < 5 {
				return odd
			}
			return nil
		}, nil, false},
		{"never", func(int) error { return odd }, odd, true},
		{"final", func(int) error { return Finally(odd) }, odd, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, looks := time.Now(), 0
				err := Until(func() error { looks++; return tt.ok(looks) })
				if !errors.Is(err, tt.want) {
					t.Errorf("Until = %v, want %v", err, tt.want)
				}
				if waited := time.Since(began) >= Patience; waited != tt.waits {
					t.Errorf("waited %v, want all of it = %t", time.Since(began), tt.waits)
				}
			})
		})
	}
}

func TestEventuallyTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		EventuallyTrue(t, "third look", func() bool { looks++; return looks == 3 })
		if looks != 3 {
			t.Errorf("looks = %d, want 3", looks)
		}
		done := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(done) })
		Closed(t, "the timer", done)
	})
}

// recorder records the failure of a test without failing this one.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestStays(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration // until it changes
		want  string
	}{
		{"for ever", time.Hour, ""},
		{"not long enough", 900 * time.Millisecond, "the condition did not stay true: the state: odd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, r := time.Now(), &recorder{TB: t}
				done := make(chan struct{})
				go func() {
					defer close(done)
					Stays(r, "the state", time.Second, func() error {
						if time.Since(began) > tt.after {
							return errors.New("odd")
						}
						return nil
					})
				}()
				<-done
				if took := time.Since(began); r.failed != tt.want || took < min(time.Second, tt.after) {
					t.Errorf("failed with %q after %v, want %q", r.failed, took, tt.want)
				}
			})
		})
	}
}

func TestListen(t *testing.T) {
	var l net.Listener
	t.Run("in a test", func(t *testing.T) {
		l = Listen(t)
		Open(net.Dial("tcp", l.Addr().String()))(t)
	})
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the test Accept = %v, want %v", err, net.ErrClosed)
	}
}

func TestFreePorts(t *testing.T) {
	a, b := FreePorts(t, 3), FreePorts(t, 2)
	if b < a+3 {
		t.Errorf("ports = %d and %d, want two rows", a, b)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(a))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if areFree(t, a, 3) {
		t.Errorf("port %d is called free", a)
	}
}

func TestShortDir(t *testing.T) {
	var dir string
	t.Run("a test with a long name, which is not in the path", func(t *testing.T) {
		if dir = ShortDir(t); len(dir) > len(os.TempDir())+20 {
			t.Errorf("folder = %s", dir)
		}
	})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is there after the test: %v", err)
	}
}
