package userdata_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/userdata"
)

// A record that lost its latest entries, as in a failover to a standby that lagged, is brought up to date from the
// journal: its receipt is as exact as without the loss.
func TestRecordThatIsBehind(t *testing.T) {
	onBoth(t, func(t *testing.T, on engine) {
		f := newFormsOn(t, on, 3, 250, false)
		var instances []int64
		for _, row := range f.data.Table("tb_process_instance").Rows {
			instances = append(instances, row[0].(int64))
		}
		stop := f.work()
		_, before := f.erase(userdata.Request{Instances: instances})
		stop()
		f.record.Do(
			`UPDATE cleanupd.erasure SET state = 'RUNNING', end_time = NULL, entries_applied = 1, last_sequence = 100`)
		f.record.Do(
			`DELETE FROM cleanupd.erasure_event WHERE sequence > 100; UPDATE cleanupd.erasure_item
				SET state = 'PENDING' WHERE item_id > 100`,
		)
		f.record.Do(
			`UPDATE cleanupd.erasure_rows SET rows = (SELECT sum((e.body->'Instance'->'Rows'->>relation)::bigint)
				FROM cleanupd.erasure_event e)`,
		)
		f.record.Do(`DELETE FROM cleanupd.erasure_rows WHERE rows IS NULL`)
		f.work()
		_, after := f.watch(before.ID)
		if !before.Succeeded || !after.Succeeded || !slices.Equal(before.Instances, after.Instances) ||
			before.Rows["tb_task"] == 0 {
			t.Fatalf("before %+v, after %+v", before, after)
		}
		if !maps.Equal(before.Rows, after.Rows) {
			t.Errorf("before %v, after %v", before.Rows, after.Rows)
		}
	})
}

// Erasures of another Forms database are left to servers that know it.
func TestErasureOfAnotherDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, on engine) {
		one, other := bareFormsOn(t, on), bareFormsOn(t, on)
		for _, f := range []*fixture{one, other} {
			f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0), (2, 1, 'P0', 0)")
		}
		shared := other.config
		shared.Record = one.config.Record
		both := &fixture{Manager: userdata.New(shared), t: t, db: other.db}
		id, err := one.Start(t.Context(), userdata.Request{Tasks: []int64{1}})
		if err != nil {
			t.Fatal(err)
		}
		both.work()
		if _, receipt := both.erase(userdata.Request{Tasks: []int64{2}}); !receipt.Succeeded ||
			receipt.Rows["tb_task"] != 1 {
			t.Errorf("%+v", receipt)
		}
		if left := other.db.Int("SELECT count(*) FROM tb_task"); left != 1 ||
			one.record.Int("SELECT count(*) FROM cleanupd.erasure WHERE state = 'RUNNING'") != 1 {
			t.Errorf("%d tasks are left in the other database", left)
		}
		one.work()
		if _, receipt := one.watch(id); !receipt.Succeeded || receipt.Rows["tb_task"] != 1 ||
			one.db.Int("SELECT count(*) FROM tb_task") != 1 {
			t.Errorf("%+v", receipt)
		}
	})
}
