// What policies say, in words, and what their form makes of them.
import { CORE_SCHEMA, dump, load } from 'js-yaml'
import type { DatabaseTable, Policy } from './api'
import { t } from './i18n'

/** The comparisons of filters, as they are shown. */
const operators: Record<string, string> = {
  EQUAL: '=',
  NOT_EQUAL: '<>',
  LESS: '<',
  LESS_OR_EQUAL: '<=',
  GREATER: '>',
  GREATER_OR_EQUAL: '>=',
  IN: 'IN',
  NOT_IN: 'NOT IN',
  IS_NULL: 'IS NULL',
  IS_NOT_NULL: 'IS NOT NULL',
  STARTS_WITH: 'STARTS WITH',
}

/** Returns the conditions of a policy, all of which a row must meet. */
export function conditionsOf(p: Policy): string[] {
  const found: string[] = []
  if (p.olderThan) {
    const { column, days, hours } = p.olderThan
    const age = hours !== undefined ? `${hours} h` : `${days} d`
    found.push(`${column} < now` + (days || hours ? ` - ${age}` : ''))
  }
  for (const f of p.filters ?? []) {
    const op = (f.op ?? '').replace('FILTER_OP_', '')
    found.push([f.column, operators[op] ?? op, (f.values ?? []).join(', ')].join(' ').trim())
  }
  if (p.orphanOf) found.push(`${p.orphanOf.column} ∉ ${p.orphanOf.parentTable}.${p.orphanOf.parentColumn}`)
  if (p.unreferenced) found.push(t('policies.unreferenced'))
  if (p.keepNewest) {
    const per = (p.keepNewest.per ?? []).join(', ')
    const by = p.keepNewest.orderBy || p.olderThan?.column
    found.push(`rank(${by} ↓${per && ` / ${per}`}) > ${p.keepNewest.count}`)
  }
  return found
}

/** Whether a policy can delete rows of a table. */
export const hasRows = ({ kind }: DatabaseTable) => kind === 'TABLE_KIND_ORDINARY' || kind === 'TABLE_KIND_PARTITIONED'

/** Returns the table that a policy names, with or without its schema. */
export const tableOf = (tables: DatabaseTable[], { table }: Policy) =>
  tables.find(({ name }) => name === table) ?? tables.find(({ name }) => name!.endsWith(`.${table}`))

/** Returns what a new policy of a table begins with: what the server suggests. */
export const policyFor = (table?: DatabaseTable): Policy => table?.suggestion?.policy ?? { table: table?.name ?? '' }

/** Returns a policy for another table. It keeps its age if the table has the column. */
export function moveTo(table: DatabaseTable, policy: Policy): Policy {
  const { name, description, olderThan } = policyFor(table)
  const stays = table.dateColumns?.some(({ column }) => column === policy.olderThan?.column)
  return {
    ...policy,
    ...(!policy.etag && name && { name, description }),
    table: table.name,
    olderThan: stays ? policy.olderThan : olderThan,
  }
}

/** The fields that are not part of a rule. */
const fixed = ['name', 'etag', 'warnings', 'maskedValues']

/** The values that stand for nothing. */
const nothing: unknown[] = [null, '', false, 'PARTITIONS_UNSPECIFIED']

/** Returns the rule of a policy: what can be edited, without its name and what the server sets. */
export function ruleOf(p: Policy): Policy {
  const given = Object.entries(p).filter(
    ([key, v]) =>
      !fixed.includes(key) && (key === 'enabled' || !nothing.includes(v)) && !(Array.isArray(v) && v.length === 0),
  )
  return Object.fromEntries(given)
}

/** The parts of a rule that its form has fields for. */
const inForm = ['table', 'description', 'enabled', 'limit', 'olderThan', 'undo']

/** Returns the parts of a rule that its form has no fields for. */
export const othersOf = (p: Policy): Policy =>
  Object.fromEntries(Object.entries(ruleOf(p)).filter(([key]) => !inForm.includes(key)))

/** Returns a rule as YAML, with the words of a file of policies. */
export const draftOf = ({ filters, partitions, ...rule }: Policy) =>
  dump(
    {
      ...rule,
      ...(filters && { filters: filters.map(f => ({ ...f, op: f.op?.replace('FILTER_OP_', '') })) }),
      ...(partitions && { partitions: partitions.replace('PARTITIONS_', '') }),
    },
    { lineWidth: -1 },
  )

const seconds = { s: 1, m: 60, h: 3600, d: 86400 }

/** Returns the rule of a draft: of one policy, as in a file, also if it is the only one in a list. Throws for others. */
export function parseDraft(draft: string): Policy {
  const read = load(draft, { schema: CORE_SCHEMA })
  const listed = (read as { policies?: unknown } | null)?.policies ?? read
  const rule = Array.isArray(listed) && listed.length === 1 ? listed[0] : listed
  if (typeof rule !== 'object' || rule === null || Array.isArray(rule)) throw new Error(t('policies.one'))
  const { filters, assign, partitions, undo } = rule
  const prefixed = (prefix: string, word: unknown) => prefix + String(word).replace(prefix, '')
  const [, n, unit] = /^(\d+)([mhd])$/.exec(undo) ?? []
  return {
    ...rule,
    ...(Array.isArray(filters) && {
      filters: filters.map(f => ({
        ...f,
        op: prefixed('FILTER_OP_', f?.op),
        ...(Array.isArray(f?.values) && { values: f.values.map(String) }),
      })),
    }),
    ...(Array.isArray(assign) && {
      assign: assign.map(a => ({
        ...a,
        ...(a?.value !== undefined && a.value !== null && { value: String(a.value) }),
      })),
    }),
    ...(partitions && { partitions: prefixed('PARTITIONS_', partitions) }),
    ...(unit && { undo: `${Number(n) * seconds[unit as 'm']}s` }),
  }
}
