package disk

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNoLoop reports that there is no loop device for an image.
var ErrNoLoop = errors.New("no loop device is available")

// attachAttempts limits the attempts to get a loop device. Another program can take the
// free one first.
const attachAttempts = 16

// attachLoop connects an image to a free loop device.
func attachLoop(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLoop, err)
	}
	defer control.Close()
	for range attachAttempts {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoLoop, err)
		}
		device, err := configureLoop("/dev/loop"+strconv.Itoa(n), image)
		if err == nil {
			return device, nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("%w: %w", ErrNoLoop, err)
		}
	}
	return nil, fmt.Errorf("%w: other programs took %d free devices", ErrNoLoop, attachAttempts)
}

func configureLoop(path string, image *os.File) (*os.File, error) {
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	// Without direct I/O the machine would keep every block twice in its memory.
	cfg := unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], image.Name())
	err = unix.IoctlLoopConfigure(int(device.Fd()), &cfg)
	if errors.Is(err, unix.EINVAL) { // the file system of the image has no direct I/O
		cfg.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(device.Fd()), &cfg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot set up %s: %w", path, err), device.Close())
	}
	return device, nil
}

// Remedy returns what to do about an error of Limit.
func Remedy(err error) string {
	switch {
	case errors.Is(err, ErrNoMkfs):
		return "install e2fsprogs"
	case errors.Is(err, ErrNoLoop):
		return "load the kernel module loop (modprobe loop), or detach loop devices that are no longer used (losetup)"
	case errors.Is(err, unix.ENODEV):
		return "load the kernel module ext4 (modprobe ext4)"
	}
	return "see the log of dewd, and dewd doctor"
}
