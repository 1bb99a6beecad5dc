package pgtest

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// enough is the least free memory, in bytes, with which databases are kept in memory.
const enough = 4 << 30

// memoryDir returns a folder in memory, where tests are faster; "" if it has too little space or programs cannot be
// run there.
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

// availableMemory returns 0 if it is unknown.
func availableMemory() (bytes uint64) {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	return 0
}
