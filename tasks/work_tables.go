package tasks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// workTables is a kind of work tables: which go, and which are in use.
type workTables struct {
	// prefix begins their names.
	prefix string
	// bare says that nothing follows the id.
	bare bool
	// but are prefixes of other kinds that begin with this one.
	but string
	// owner is the table whose rows they belong to, key its id column.
	owner, key string
	// inUse is SQL over a row o of owner: the row makes the tables of its id stay. Its columns must be there.
	inUse string
	// lists says that names which end in _grp<id> stay while that list exists.
	lists bool
}

// As long as a drop waits for a lock, the application waits behind it: so long for each lock, and so long for all
// of its statement.
const (
	dropLock    = 500 * time.Millisecond
	dropTimeout = time.Second
)

var deliveryWorkTables = Task{
	Name:        "work-tables",
	Title:       "Work tables of deliveries",
	Description: "Work tables (wkDlv_…) of deliveries that are not in progress: dropped.",
	Do:          dropDeliveryTables,
}

func dropDeliveryTables(ctx context.Context, e *Env) (bool, error) {
	return e.dropWorkTables(ctx, workTables{
		prefix: "wkdlv_", owner: "NmsDelivery", key: "iDeliveryId", inUse: "o.iDeleteStatus = 0 AND o.iState NOT IN (0, 85, 100)",
	})
}

// dropWorkTables drops the tables of a kind that are not in use. It says whether there was anything to judge them by.
func (e *Env) dropWorkTables(ctx context.Context, k workTables) (bool, error) {
	p := &plan{}
	defer e.tell(ctx, p)
	ask, err := e.question(ctx, p, k)
	if err != nil || ask == nil {
		return false, errors.Join(err, rightsError(p.rights))
	}
	found, strange, err := e.Catalog.WorkTables(ctx, e.Pool, k.prefix, k.bare)
	if err != nil {
		return false, err
	}
	for _, name := range strange {
		if k.but == "" || !strings.HasPrefix(name, k.but) {
			p.note(Info, "%s begins like a work table, but has no id where one should be: left alone", name)
		}
	}
	for _, w := range found {
		e.journal.At(w.Name, -1)
		used, err := ask(ctx, e.Pool, w)
		if err != nil {
			return false, err
		}
		if used {
			continue
		}
		if e.DryRun {
			err = e.journal.Count(ctx, purge.Delta{Dropped: 1})
		} else {
			err = e.dropUnless(ctx, w, ask)
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// question asks whether a work table is in use.
type question func(ctx context.Context, db campaign.Querier, w campaign.WorkTable) (bool, error)

// question builds the question of a kind; nil, with a note, when it can not be asked.
func (e *Env) question(ctx context.Context, p *plan, k workTables) (question, error) {
	if e.Catalog.Table("NmsDelivery") == nil {
		p.note(Warning, "table NmsDelivery is missing, whose owner tells the application's tables: skipped")
		return nil, nil
	}
	owner, _, err := e.parent(ctx, p, k.owner, k.key, "")
	if err != nil || owner == nil {
		return nil, err
	}
	for _, m := range columnName.FindAllStringSubmatch(k.inUse, -1) {
		if !owner.Has(m[2]) {
			p.note(Info, "%s has no column %s: skipped", owner.Name, m[2])
			return nil, nil
		}
	}
	inUse := fmt.Sprintf("SELECT EXISTS (SELECT FROM %s AS o WHERE o.%[2]s = $1 AND o.%[2]s <> 0 AND %[3]s)", owner.Quoted(), k.key, k.inUse)
	list := ""
	if groups := e.Catalog.Table("NmsGroup"); k.lists && groups != nil {
		// Without any list nothing is known of lists: then what holds one's data stays.
		list = fmt.Sprintf("SELECT EXISTS (SELECT FROM %[1]s WHERE iGroupId = $1) OR NOT EXISTS (SELECT FROM %[1]s)", groups.Quoted())
		e.needs(p, groups, "SELECT")
	}
	return func(ctx context.Context, db campaign.Querier, w campaign.WorkTable) (used bool, err error) {
		err = db.QueryRow(ctx, inUse, w.ID).Scan(&used)
		id, ok := w.ListID()
		switch {
		case err != nil || used || !ok || !k.lists:
			return used, err
		case list == "":
			return true, nil
		}
		err = db.QueryRow(ctx, list, id).Scan(&used)
		return used, err
	}, nil
}

// dropUnless drops a work table, unless it is in use once nobody else can touch it: the drop takes the lock, the
// question is asked under it, and a rollback undoes the drop. (LOCK TABLE on a view would lock the tables it stands
// on.) What refuses the drop is reported and passed over.
func (e *Env) dropUnless(ctx context.Context, w campaign.WorkTable, ask question) error {
	errUsed := errors.New("it is in use")
	err := e.inBatch(ctx, w.Name, func(tx Tx) (purge.Delta, error) {
		if err := drop(ctx, tx, w); err != nil {
			return purge.Delta{}, err
		}
		used, err := ask(ctx, tx, w)
		if err == nil && used {
			err = errUsed
		}
		return purge.Delta{Dropped: 1}, err
	})
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, errUsed) || vanished(err):
		return nil
	case errors.As(err, &pgErr) && !Lost(err):
		e.log(ctx, Warning, fmt.Sprintf("%s could not be dropped: %s", w.Name, pgErr.Message))
		return nil
	}
	return err
}

// drop drops a work table, waiting for its lock only briefly. No CASCADE.
func drop(ctx context.Context, tx Tx, w campaign.WorkTable) error {
	what := "TABLE "
	if w.View {
		what = "VIEW "
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d", dropLock.Milliseconds(), dropTimeout.Milliseconds()))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DROP "+what+w.Quoted())
	return err
}
