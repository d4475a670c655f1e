package testkit

import (
	"errors"
	"net"
	"os"
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
