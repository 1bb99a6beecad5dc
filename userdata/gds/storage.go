package gds

import (
	"fmt"
	"os"

	"github.com/cleanupd/cleanupd/userdata/report"
)

// Storage says where the documents are, which is unknown if neither field is set.
type Storage struct {
	Folder     string
	InDatabase bool
}

func CheckFolder(folder string) error {
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", folder)
	}
	return nil
}

func Unreadable(problem error) report.Event {
	return report.Errorf("cannot access the document storage's folder: %v", problem)
}
