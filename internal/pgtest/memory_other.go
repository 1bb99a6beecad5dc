//go:build !linux

package pgtest

// memoryDir returns "", since no folder is known to be in memory.
func memoryDir() string { return "" }
