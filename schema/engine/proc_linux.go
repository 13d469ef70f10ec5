package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// orphanSignal tells the child that the parent is gone, as the end of the
// lifeline does.
const orphanSignal = syscall.SIGUSR1

// childAttr puts the child into a process group of its own, out of reach of a
// terminal's signals, and has the kernel signal it should the thread that
// started it end: the belt to the lifeline's braces.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphanSignal}
}

// executable is this very binary, also after an upgrade has put another file
// in its place.
func executable() (string, error) { return "/proc/self/exe", nil }

// nameProcess is what top shows; best effort, for the calling thread.
func nameProcess() {
	name := []byte("flyball-engine\x00")
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
}

// lowerPriority raises the nice value of every thread of this process group.
func lowerPriority() error {
	if unix.Getpgrp() != os.Getpid() {
		return fmt.Errorf("process %d leads no group", os.Getpid())
	}
	return unix.Setpriority(unix.PRIO_PGRP, 0, 5)
}

// lowerMerges lets merges have what inserts and questions leave. Where the engine may also raise
// priorities it does that by itself, as its configuration says.
func lowerMerges() error {
	names, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil {
		return err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(b)) != "MergeMutate" {
			continue // another thread, or one that ended
		}
		tid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, tid, mergeNice)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // it ended meanwhile
			return err
		}
	}
	return nil
}
