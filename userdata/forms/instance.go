package forms

import "context"

type Instance struct {
	ID         int64
	Invocation string // the long-lived invocation id
	Status     int32
}

// Complete and Terminated are the statuses of process instances that have ended.
const (
	Complete   = 2
	Terminated = 4
)

var EndedStatuses = []int64{Complete, Terminated}

func (i *Instance) Ended() bool { return i.Status == Complete || i.Status == Terminated }

// Instances returns the process instances that exist, by id. lock is the clause that locks their rows, or "".
func (t *Transaction) Instances(ctx context.Context, ids []int64, lock string) (map[int64]*Instance, error) {
	instances := map[int64]*Instance{}
	var in Instance
	query := "SELECT id, COALESCE(long_lived_invocation_id, ''), COALESCE(status, 0) FROM tb_process_instance " +
		"WHERE id IN (@ids) ORDER BY id" + lock
	err := t.Each(ctx, query, Args{"ids": ids}, []any{&in.ID, &in.Invocation, &in.Status}, func() {
		found := in
		instances[in.ID] = &found
	})
	return instances, err
}

// Instance returns nil if the process instance does not exist.
func (d *Database) Instance(ctx context.Context, id int64) (in *Instance, err error) {
	err = d.Snapshot(ctx, func(tx *Transaction) error {
		instances, err := tx.Instances(ctx, []int64{id}, "")
		in = instances[id]
		return err
	})
	return in, err
}
