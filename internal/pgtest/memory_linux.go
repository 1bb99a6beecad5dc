package pgtest

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// enough is the least free memory, in bytes, with which databases are kept in memory.
const enough = 4 << 30

// memoryDir returns a folder in memory for the databases of tests, which are faster there. It returns the empty string
// if none has enough space and lets programs be run.
func memoryDir() string {
	const dir = "/dev/shm"
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil || fs.Flags&unix.ST_NOEXEC != 0 || unix.Access(dir, unix.W_OK) != nil {
		return ""
	}
	if min(fs.Bavail*uint64(fs.Bsize), availableMemory()) < enough {
		return ""
	}
	return dir
}

// availableMemory returns how much memory programs can still take, in bytes; 0 if that is unknown.
func availableMemory() (bytes uint64) {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	return 0
}
