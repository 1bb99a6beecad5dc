package userdata_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cleanupd/cleanupd/userdata"
)

// While the record belongs to another instance, or everything is on hold, no erasure is requested, and no waiting
// erasure is begun.
func TestErasureThatMayNotBe(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*userdata.Config) *func(context.Context) error{
		"another instance's": func(c *userdata.Config) *func(context.Context) error { return &c.Own },
		"held":               func(c *userdata.Config) *func(context.Context) error { return &c.Held },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mayNotErase(t, refuse)
		})
	}
}

func mayNotErase(t *testing.T, refuse func(*userdata.Config) *func(context.Context) error) {
	f := newForms(t, 1, 3, false)
	waits, err := f.Start(t.Context(), userdata.Request{Instances: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	var may atomic.Bool
	asked := make(chan struct{}, 100)
	*refuse(&f.config) = func(context.Context) error {
		if may.Load() {
			return nil
		}
		asked <- struct{}{}
		return refused
	}
	f.open()
	before := f.db.Int("SELECT count(*) FROM tb_process_instance")
	f.work()
	if _, err := f.Start(t.Context(), userdata.Request{Instances: []int64{1}}); !errors.Is(err, refused) {
		t.Errorf("an erasure is requested: %v", err)
	}
	receive(t, asked, 3) // Start asked, and the replica has skipped the erasure when it asks again
	if n := f.db.Int("SELECT count(*) FROM tb_process_instance"); n != before {
		t.Errorf("%d instances are left of %d", n, before)
	}
	may.Store(true)
	if _, receipt := f.watch(waits); !receipt.Succeeded {
		t.Errorf("%+v", receipt)
	}
}
