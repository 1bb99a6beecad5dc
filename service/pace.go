package service

import (
	"context"
	"fmt"
	"strings"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/runs/schedule"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

func (s *Service) SetPace(ctx context.Context, in *cleanupv1.SetPaceRequest) (*cleanupv1.SetPaceResponse, error) {
	to, err := parsePace("pace", in.GetPace())
	if err != nil {
		return nil, err
	}
	if to == "" {
		return nil, failure.Field("pace", "is missing: "+paceNames())
	}
	run, err := s.runs.SetPace(ctx, in.GetRunId(), to, access.FromContext(ctx).String())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.SetPaceResponse{Run: runMessage(run)}, nil
}

func (s *Service) PauseRun(ctx context.Context, in *cleanupv1.PauseRunRequest) (*cleanupv1.PauseRunResponse, error) {
	run, err := s.runs.Pause(ctx, in.GetRunId(), access.FromContext(ctx).String())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.PauseRunResponse{Run: runMessage(run)}, nil
}

func (s *Service) ResumeRun(ctx context.Context, in *cleanupv1.ResumeRunRequest) (*cleanupv1.ResumeRunResponse, error) {
	run, err := s.runs.Resume(ctx, in.GetRunId(), access.FromContext(ctx).String())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.ResumeRunResponse{Run: runMessage(run)}, nil
}

const pacePrefix = "PACE_"

// parsePace returns "" if no pace is given.
func parsePace(field string, p cleanupv1.Pace) (pace.Pace, error) {
	name, known := cleanupv1.Pace_name[int32(p)]
	switch {
	case p == cleanupv1.Pace_PACE_UNSPECIFIED:
		return "", nil
	case !known:
		return "", failure.Field(field, "must be "+paceNames())
	}
	return pace.Pace(strings.TrimPrefix(name, pacePrefix)), nil
}

func paceMessage(p pace.Pace) cleanupv1.Pace {
	return cleanupv1.Pace(cleanupv1.Pace_value[pacePrefix+string(p)])
}

func paceNames() string {
	var names []string
	for _, p := range pace.Paces {
		names = append(names, pacePrefix+string(p))
	}
	return strings.Join(names, ", ")
}

// parseWindows does not check days and times; package schedule does.
func parseWindows(given []*cleanupv1.Window) (windows []schedule.Window, err error) {
	for i, w := range given {
		p, err := parsePace(fmt.Sprintf("schedule.windows[%d].pace", i), w.GetPace())
		if err != nil {
			return nil, err
		}
		windows = append(windows, schedule.Window{Days: w.GetDays(), Start: w.GetStart(), End: w.GetEnd(), Pace: p})
	}
	return windows, nil
}
