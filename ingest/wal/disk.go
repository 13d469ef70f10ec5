package wal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// file is a segment open for writing at its end.
type file interface {
	io.WriteCloser
	Sync() error
}

// disk is what the log does to its directory, apart from reading. The
// functions are fields so that a test can record their order and make them
// fail.
type disk struct {
	create  func(name string) (file, error)             // fails if it exists
	reopen  func(name string, size int64) (file, error) // cut to size
	remove  func(name string) error
	syncDir func() error
	free    func() (int64, error) // bytes an unprivileged process may still write
	close   func() error
}

// openDisk creates dir durably if it is absent and locks it for this process.
func openDisk(dir string) (disk, error) {
	if err := makeDir(dir); err != nil {
		return disk{}, fmt.Errorf("create directory: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return disk{}, fmt.Errorf("open directory: %w", err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = d.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return disk{}, fmt.Errorf("lock directory %s: another process has it open", dir)
		}
		return disk{}, fmt.Errorf("lock directory %s: %w", dir, err)
	}
	return disk{
		create: func(name string) (file, error) {
			return openFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL)
		},
		reopen: func(name string, size int64) (file, error) {
			path := filepath.Join(dir, name)
			if err := os.Truncate(path, size); err != nil {
				return nil, err
			}
			return openFile(path, 0)
		},
		remove:  func(name string) error { return os.Remove(filepath.Join(dir, name)) },
		syncDir: d.Sync,
		free: func() (int64, error) {
			var st unix.Statfs_t
			if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
				return 0, err
			}
			return int64(st.Bavail) * st.Bsize, nil
		},
		close: d.Close,
	}, nil
}

// openFile exists so that a nil *os.File never becomes a non-nil file.
func openFile(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|flag, 0o640)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// makeDir creates dir and its missing parents and fsyncs the parents, without
// which a power cut may take the whole log away with its directory.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	p, err := os.Open(parent)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Sync()
}

func isEOF(err error) bool { return err == nil || errors.Is(err, io.EOF) }
