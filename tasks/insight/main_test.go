package insight_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
