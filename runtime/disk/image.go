package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	block = 4096
	// baseBlocks are used in every layer: its own folders, and overlayfs's.
	baseBlocks = 4
	inodeSize  = 256
	// fewInodes is the limit above which a layer has one inode for each 16 KiB instead of
	// one for each block: the tables of inodes would be large.
	fewInodes = 8 << 30
)

// inodeRatio returns the number of bytes for each inode.
func inodeRatio(limit int64) int64 {
	if limit > fewInodes {
		return 4 * block
	}
	return block
}

// imageBytes returns the size of an image in which limit bytes are usable. The kernel
// reserves what is left.
func imageBytes(limit int64) int64 {
	const slack = 1 << 20 // for the tables of groups, and a last group that is too small
	ratio := inodeRatio(limit)
	n := limit*ratio/(ratio-inodeSize) + limit/512 + slack
	return (n + block - 1) / block * block
}

// createImage creates the image of an empty file system as a copy of a template, which
// takes a fraction of the time of mkfs.
func (l *Limits) createImage(path string, limit int64) error {
	template, err := l.template(limit)
	if err != nil {
		return err
	}
	defer template.Close()
	image, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot create a disk image: %w", err)
	}
	if err := errors.Join(copySparse(image, template), image.Close()); err != nil {
		return fmt.Errorf("cannot create a disk image: %w", err)
	}
	return nil
}

// template opens the image of an empty file system, and creates it at its first use.
func (l *Limits) template(limit int64) (*os.File, error) {
	l.templates.Lock()
	defer l.templates.Unlock()
	path := filepath.Join(l.cfg.Dir, "template-"+strconv.FormatInt(limit, 10)+imageSuffix)
	f, err := os.Open(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	draft := path + ".draft"
	if err := makeFileSystem(draft, limit); err != nil {
		return nil, errors.Join(err, os.RemoveAll(draft))
	}
	if err := os.Rename(draft, path); err != nil {
		return nil, fmt.Errorf("cannot create a disk image: %w", err)
	}
	return os.Open(path)
}

// ErrNoMkfs reports that the program that creates file systems is not installed.
var ErrNoMkfs = errors.New("the program mkfs.ext4 was not found")

// mkfs finds the program. The path of a user often has no folder for system programs.
func mkfs() (string, error) {
	for _, name := range []string{"mkfs.ext4", "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoMkfs
}

func makeFileSystem(path string, limit int64) error {
	program, err := mkfs()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot create a disk image: %w", err)
	}
	if err := errors.Join(f.Truncate(imageBytes(limit)), f.Close()); err != nil {
		return fmt.Errorf("cannot create a disk image: %w", err)
	}
	var output bytes.Buffer
	c := exec.Command(program, "-q", "-F", "-b", strconv.Itoa(block), "-I", strconv.Itoa(inodeSize), "-i", strconv.FormatInt(inodeRatio(limit), 10),
		"-m", "0", "-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", path)
	c.Stdout, c.Stderr = &output, &output
	if err := c.Run(); err != nil {
		return fmt.Errorf("cannot create an ext4 file system: %w: %s", err, strings.Join(strings.Fields(output.String()), " "))
	}
	return nil
}

// copySparse copies the data of a file and leaves its holes.
func copySparse(to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, end-start)); err != nil {
			return err
		}
		at = end
	}
	return nil
}
