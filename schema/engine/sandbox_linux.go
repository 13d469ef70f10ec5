package engine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The engine evaluates SQL that others wrote, and it has functions for which
// no right is asked: file() reads any file of the machine. So the child gives
// up what it does not need before it loads the library, with Landlock (Linux
// 5.13; the network from 6.7): it sees its store, its private directory and
// what a process needs to run, and opens no TCP connection.

const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readTree = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	runFile  = readFile | unix.LANDLOCK_ACCESS_FS_EXECUTE
	// onFile are the rights that mean something on a file.
	onFile = runFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// confine restricts the calling thread and executes the binary again, which
// restricts all of the new process. It returns only if it cannot: nil when the
// kernel has no Landlock.
func confine(cfg childConfig, env []string) error {
	abi, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return nil
	}
	all := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1) // the 13 rights of version 1
	if abi >= 2 {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all}
	size := unsafe.Offsetof(attr.Handled_access_net)
	if abi >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = unsafe.Offsetof(attr.Handled_access_net) + unsafe.Sizeof(attr.Handled_access_net)
	}
	ruleset, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("confine engine: create ruleset: %w", errno)
	}
	defer unix.Close(int(ruleset))

	exe, err := executable()
	if err != nil {
		return fmt.Errorf("confine engine: %w", err)
	}
	allow := func(access uint64, paths ...string) {
		for _, p := range paths {
			if e := allowBeneath(int(ruleset), p, access&all); e != nil && !errors.Is(e, os.ErrNotExist) && err == nil {
				err = fmt.Errorf("confine engine: allow %s: %w", p, e)
			}
		}
	}
	allow(all&^unix.LANDLOCK_ACCESS_FS_EXECUTE, cfg.Dir, cfg.RunDir)
	// To remove the private directory itself at the end.
	allow(unix.LANDLOCK_ACCESS_FS_REMOVE_DIR, filepath.Dir(cfg.RunDir))
	allow(runFile, exe)
	allow(runFile, mappedFiles()...) // the dynamic linker and its libraries, wherever they are
	allow(readFile, cfg.Library)
	allow(readTree, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime", "/etc/timezone")
	// Its own process, not others'; and what the engine reads about the machine.
	allow(readTree, "/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/vmstat", "/proc/diskstats",
		"/proc/sys/vm", "/proc/sys/kernel", "/sys/fs/cgroup", "/sys/devices/system", "/sys/kernel/mm")
	allow(readFile|unix.LANDLOCK_ACCESS_FS_WRITE_FILE, "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
	if err != nil {
		return err
	}

	// Restrictions are of a thread; the one that executes hands them on.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine engine: %w", err)
	}
	if _, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return fmt.Errorf("confine engine: %w", errno)
	}
	return fmt.Errorf("confine engine: execute %s again: %w", exe, syscall.Exec(exe, os.Args, env))
}

// allowBeneath adds a rule for a file or a tree.
func allowBeneath(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= onFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// mappedFiles are the files this process runs from.
func mappedFiles() []string {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer f.Close()
	seen := map[string]bool{}
	var paths []string
	for s := bufio.NewScanner(f); s.Scan(); {
		i := strings.IndexByte(s.Text(), '/')
		if i < 0 {
			continue
		}
		if p := s.Text()[i:]; !seen[p] {
			seen[p] = true
			paths = append(paths, p)
		}
	}
	return paths
}
