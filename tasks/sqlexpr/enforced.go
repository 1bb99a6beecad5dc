package sqlexpr

// Enforced is true if a foreign key k of pg_constraint is enforced. Since PostgreSQL 18 there are keys that are
// not, which neither refuse nor cascade anything; older versions do not have the column.
const Enforced = "(to_jsonb(k) ->> 'conenforced') IS DISTINCT FROM 'false'"
