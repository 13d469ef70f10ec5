//go:build !linux

package engine

import (
	"os"
	"syscall"
)

const orphanSignal = syscall.SIGUSR1

func childAttr() *syscall.SysProcAttr { return nil }

func executable() (string, error) { return os.Executable() }

func nameProcess() {}

func lowerPriority() error { return nil }

func lowerMerges() error { return nil }
