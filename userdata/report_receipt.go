package userdata

import (
	"time"

	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Receipt is the lasting record of an erasure. It holds no user data.
type Receipt struct {
	ID          string
	RequestedBy string
	CreateTime  time.Time
	EndTime     *time.Time // nil while the erasure is running
	Succeeded   bool
	DryRun      bool
	Sweep       bool
	Purge       string // the purge that the erasure belongs to, in the run RunID; empty if a user requested it
	RunID       string
	UserIDHash  string // a salted hash; empty unless a user id was given
	Salt        string
	Instances   []int64
	Tasks       []int64
	Rows        forms.Rows
	Files       []string
	Problems    []string
	// Verification is the latest one; nil if the erasure was never verified.
	Verification *Verification
}

// Verification is the result of searching again for what an erasure was to erase.
type Verification struct {
	Time time.Time `json:"Time"`
	// Clean says that nothing was found, apart from possible coincidences.
	Clean bool `json:"Clean"`
	// Instances and Tasks were found by the erasure's ids or by the user. Possible lists process instances with a
	// variable that contains the user id as a part of something longer.
	Instances   []int64  `json:"Instances"`
	Tasks       []int64  `json:"Tasks"`
	Possible    []int64  `json:"Possible"`
	NotSearched []string `json:"NotSearched"`
}
