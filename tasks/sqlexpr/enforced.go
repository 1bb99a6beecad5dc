package sqlexpr

// A foreign key k of pg_constraint is enforced. PostgreSQL 18 has others, which neither refuse nor cascade anything;
// before, there is no such column.
const Enforced = "(to_jsonb(k) ->> 'conenforced') IS DISTINCT FROM 'false'"
