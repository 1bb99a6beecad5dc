// What policies say, in words, and what their form makes of them.
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

/** Returns a rule as JSON. */
export const draftOf = (rule: Policy) => JSON.stringify(rule, null, 2)

/** Returns the rule of a draft. Throws a SyntaxError for text that is not JSON. */
export const parseDraft = (draft: string) => JSON.parse(draft) as Policy
