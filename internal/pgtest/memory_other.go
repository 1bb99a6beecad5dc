//go:build !linux

package pgtest

// memoryDir returns the empty string: no folder is known to be in memory.
func memoryDir() string { return "" }
