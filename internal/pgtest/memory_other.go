//go:build !linux

package pgtest

// No folder is known to be in memory.
func memoryDir() string { return "" }
