package main

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// mode is one terminal setting, with the numbers of RFC 4254.
type mode struct{ opcode, value uint32 }

// parseModes reads "53=0,128=38400".
func parseModes(text string) ([]mode, error) {
	var out []mode
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(item, "=")
		opcode, err := strconv.ParseUint(name, 10, 8)
		v, verr := strconv.ParseUint(value, 10, 32)
		if err != nil || verr != nil {
			return nil, errors.New("--modes needs OPCODE=VALUE pairs, separated by commas")
		}
		out = append(out, mode{uint32(opcode), uint32(v)})
	}
	return out, nil
}

// The opcodes of RFC 4254, section 8, and their settings. They are lists and not maps,
// because the compiler creates a list, but a map is built at every start.
var (
	controlChars = []setting{
		{1, syscall.VINTR},
		{2, syscall.VQUIT},
		{3, syscall.VERASE},
		{4, syscall.VKILL},
		{5, syscall.VEOF},
		{6, syscall.VEOL},
		{7, syscall.VEOL2},
		{8, syscall.VSTART},
		{9, syscall.VSTOP},
		{10, syscall.VSUSP},
		{12, syscall.VREPRINT},
		{13, syscall.VWERASE},
		{14, syscall.VLNEXT},
		{18, syscall.VDISCARD},
	}
	inputFlags = []setting{
		{30, syscall.IGNPAR},
		{31, syscall.PARMRK},
		{32, syscall.INPCK},
		{33, syscall.ISTRIP},
		{34, syscall.INLCR},
		{35, syscall.IGNCR},
		{36, syscall.ICRNL},
		{37, syscall.IUCLC},
		{38, syscall.IXON},
		{39, syscall.IXANY},
		{40, syscall.IXOFF},
		{41, syscall.IMAXBEL},
		{42, syscall.IUTF8},
	}
	localFlags = []setting{
		{50, syscall.ISIG},
		{51, syscall.ICANON},
		{52, syscall.XCASE},
		{53, syscall.ECHO},
		{54, syscall.ECHOE},
		{55, syscall.ECHOK},
		{56, syscall.ECHONL},
		{57, syscall.NOFLSH},
		{58, syscall.TOSTOP},
		{59, syscall.IEXTEN},
		{60, syscall.ECHOCTL},
		{61, syscall.ECHOKE},
		{62, syscall.PENDIN},
	}
	outputFlags = []setting{
		{70, syscall.OPOST}, {71, syscall.OLCUC}, {72, syscall.ONLCR}, {73, syscall.OCRNL}, {74, syscall.ONOCR}, {75, syscall.ONLRET},
	}
)

// setting is the number of an opcode, and its flag or character.
type setting struct{ opcode, what uint32 }

func find(list []setting, opcode uint32) (uint32, bool) {
	for _, s := range list {
		if s.opcode == opcode {
			return s.what, true
		}
	}
	return 0, false
}

// applyModes applies the client's settings to the terminal.
func applyModes(fd uintptr, modes []mode) {
	var t syscall.Termios
	if len(modes) == 0 {
		return
	}
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&t))); e != 0 {
		return
	}
	for _, m := range modes {
		setMode(&t, m)
	}
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCSETS, uintptr(unsafe.Pointer(&t)))
}

func setMode(t *syscall.Termios, m mode) {
	const disabled = 255 // disables a control character
	if at, ok := find(controlChars, m.opcode); ok {
		t.Cc[at] = byte(m.value)
		if m.value == disabled {
			t.Cc[at] = 0
		}
		return
	}
	for _, set := range []struct {
		flags []setting
		word  *uint32
	}{{inputFlags, &t.Iflag}, {localFlags, &t.Lflag}, {outputFlags, &t.Oflag}} {
		flag, ok := find(set.flags, m.opcode)
		switch {
		case ok && m.value != 0:
			*set.word |= flag
		case ok:
			*set.word &^= flag
		}
	}
}
