package terminal

import (
	"context"
	"io"
	"testing"
)

// An interrupted prompt is not answered with yes.
func TestQuestionInterrupted(t *testing.T) {
	t.Parallel()
	silence, end := io.Pipe()
	defer func() { _ = end.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if text := ReadAnswer(ctx, silence); text != "" {
		t.Errorf("the answer is %q", text)
	}
}
