package userdata_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/userdata"
)

// A replica that loses the connection with its locks stops working in the folder. Another replica that works there
// would otherwise take its stale markers for references, and each would leave the documents to the other.
func TestLostFolderLock(t *testing.T) {
	t.Parallel()
	f, ids := sharedDocuments(t, onPostgres, 400)
	f.db.Do(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END';
		CREATE TRIGGER slow AFTER INSERT ON cleanupd.erasure_file FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
	replica := func() {
		(&fixture{
			Manager: onPools(t, f.config, f.record.For(campaigndb.Role).Pool, f.record.For(campaigndb.Role).Pool),
			t:       t,
		}).work()
	}
	const locks = " FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE " +
		"datname = current_database()) AND classid = x'666f'::int AND objid = x'6c646572'::int::oid"
	replica()
	f.record.Until("SELECT count(*) FROM cleanupd.erasure_event WHERE body->'Log'->>'Message' LIKE 'searched the%'")
	replica()
	f.record.Until("SELECT count(*)" + locks + " AND NOT granted")
	f.record.Superuser("SELECT pg_terminate_backend(pid)" + locks + " AND granted")
	f.allErased(ids)
}

// A Forms server whose responses are lost.
type lossyServer struct{ db *pgtest.DB }

func (d lossyServer) TerminateProcess(context.Context, string) error { return nil }

func (d lossyServer) PurgeProcessInstance(ctx context.Context, invocation string) error {
	_, err := d.db.Exec(ctx, "DELETE FROM tb_process_instance WHERE long_lived_invocation_id = $1", invocation)
	return errors.Join(errors.New("the answer is lost"), err)
}

// A process instance that no longer exists after a purge counts as erased, even if the Forms server's response is lost.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do("INSERT INTO tb_process_instance VALUES (1, 'one', 2)")
	f.config.Server = lossyServer{f.record}
	f.Manager = userdata.New(f.config)
	f.work()
	if events, receipt := f.erase(userdata.Request{Instances: []int64{1}}); !receipt.Succeeded ||
		events[0].Instance == nil {
		t.Errorf("%+v %+v", events, receipt)
	}
}

// No transaction is idle while a user id is compared with many failed erasures.
func TestManyFailedErasures(t *testing.T) {
	t.Parallel()
	f := bareForms(t, "one", "one.session_wfattach1")
	f.record.Do(
		`WITH e AS (INSERT INTO cleanupd.erasure (id, forms_id, state, requested_by, end_time, user_id_hash, salt)
			SELECT gen_random_uuid(), $1, 'FAILED', 'x', now(), repeat('ab', 32), md5(i::text)
			FROM generate_series(1, 20) i RETURNING id)
		INSERT INTO cleanupd.erasure_session (forms_id, session_id, erasure_id, kind, item_id)
			SELECT $1, '_wftask' || id, id, 'task', 5 FROM e`,
		f.config.Forms.Identity(),
	)
	f.record.Superuser("ALTER DATABASE " + f.record.Name + " SET idle_in_transaction_session_timeout = '200ms'")
	f.record.Reset()
	if _, err := f.Start(t.Context(), userdata.Request{Query: &userdata.Query{UserID: "nobody"}}); err != nil {
		t.Error(err)
	}
}
