package userdata_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cleanupd/cleanupd/userdata"
)

// Where the record is another instance's, no erasure is requested, and none that waits is taken up.
func TestErasureOfAnotherInstance(t *testing.T) {
	t.Parallel()
	f := newForms(t, 1, 3, false)
	waits, err := f.Start(t.Context(), userdata.Request{Instances: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	foreign := errors.New("another instance's")
	var ours atomic.Bool
	asked := make(chan struct{}, 100)
	f.config.Own = func(context.Context) error {
		if ours.Load() {
			return nil
		}
		asked <- struct{}{}
		return foreign
	}
	f.open()
	before := f.db.Int("SELECT count(*) FROM tb_process_instance")
	f.work()
	if _, err := f.Start(t.Context(), userdata.Request{Instances: []int64{1}}); !errors.Is(err, foreign) {
		t.Errorf("an erasure is requested: %v", err)
	}
	for range 3 { // Start did, and the replica has passed the erasure over by the time that it asks again
		<-asked
	}
	if n := f.db.Int("SELECT count(*) FROM tb_process_instance"); n != before {
		t.Errorf("%d instances are left of %d", n, before)
	}
	ours.Store(true)
	if _, receipt := f.watch(waits); !receipt.Succeeded {
		t.Errorf("%+v", receipt)
	}
}
