//go:build !linux

package engine

import "syscall"

const orphanSignal = syscall.SIGUSR1

func childAttr() *syscall.SysProcAttr { return nil }

func lowerPriority() error { return nil }
