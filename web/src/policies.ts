// What policies say, in words.
import type { Policy } from './api'

/** What a new policy begins with. */
const blank: Policy = { table: '', olderThan: { column: '', days: 365 } }

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
  if (p.keepNewest) {
    const per = (p.keepNewest.per ?? []).join(', ')
    const by = p.keepNewest.orderBy || p.olderThan?.column
    found.push(`rank(${by} ↓${per && ` / ${per}`}) > ${p.keepNewest.count}`)
  }
  return found
}

/** The fields that are not part of a rule. */
const fixed = ['name', 'etag', 'warnings']

/** Returns a policy as JSON to edit, without its name and what the server sets. */
export function draftOf(p: Policy = blank): string {
  const given = Object.entries(p).filter(
    ([key, v]) => !fixed.includes(key) && v !== null && v !== '' && !(Array.isArray(v) && v.length === 0),
  )
  return JSON.stringify(Object.fromEntries(given), null, 2)
}

/** Returns the policy of a draft. Throws a SyntaxError for text that is not JSON. */
export const parseDraft = (draft: string) => JSON.parse(draft) as Policy
