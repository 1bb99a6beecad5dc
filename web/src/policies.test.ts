import { expect, test, vi } from 'vitest'
import { load } from './i18n'
import type { Policy } from './api'
import { conditionsOf, draftOf, moveTo, othersOf, parseDraft, ruleOf, tableOf } from './policies'

test('each condition of a policy is shown', () => {
  expect(
    conditionsOf({
      olderThan: { column: 'placed', days: 730 },
      filters: [
        { column: 'status', op: 'FILTER_OP_IN', values: ['open', 'paid'] },
        { column: 'note', op: 'FILTER_OP_IS_NULL', values: [] },
      ],
      orphanOf: { column: 'customer', parentTable: 'shop.customer', parentColumn: 'id' },
      keepNewest: { per: ['customer'], orderBy: '', count: 3 },
    }),
  ).toEqual([
    'placed < now - 730 d',
    'status IN open, paid',
    'note IS NULL',
    'customer ∉ shop.customer.id',
    'rank(placed ↓ / customer) > 3',
  ])
})

test('an age is shown in its unit, and none where dates are compared with now', () => {
  expect(conditionsOf({ olderThan: { column: 'made', hours: 36 } })).toEqual(['made < now - 36 h'])
  expect(conditionsOf({ olderThan: { column: 'expires', hours: 0 } })).toEqual(['expires < now'])
  expect(conditionsOf({ olderThan: { column: 'expires', days: 0 } })).toEqual(['expires < now'])
})

const policy = {
  name: 'a',
  table: 't',
  description: '',
  filters: [],
  keepNewest: { count: 3 },
  olderThan: { column: 'c', days: 1 },
  etag: 'x',
  maskedValues: 0,
}

test('a rule has what can be edited', () => {
  const rule = { table: 't', olderThan: { column: 'c', days: 1 }, keepNewest: { count: 3 } }
  expect(parseDraft(draftOf(ruleOf(policy)))).toEqual(rule)
  expect(() => parseDraft('{')).toThrow()
})

test('a rule is written as in a file of policies', () => {
  const sent: Policy = {
    table: 't',
    filters: [{ column: 'c', op: 'FILTER_OP_IN', values: ['1', '2026-01-01'] }],
    assign: [{ column: 'd', value: '0' }, { column: 'e' }],
    partitions: 'PARTITIONS_DETACH',
    undo: '259200s',
  }
  expect(parseDraft(draftOf(sent))).toEqual(sent)
  const rule =
    'table: t\n  filters: [{column: c, op: IN, values: [1, 2026-01-01]}]\n  assign: [{column: d, value: 0}, {column: e}]\n' +
    '  partitions: DETACH\n  undo: 3d\n'
  expect(parseDraft('policies:\n- ' + rule)).toEqual(sent)
  expect(parseDraft(rule.replaceAll('\n  ', '\n'))).toEqual(sent)
  expect(() => parseDraft('')).toThrow()
  for (const none of ['5', '- {table: t}\n- {table: u}']) expect(() => parseDraft(none)).toThrow()
})

test('a form shows the parts of a rule that it has no fields for', () => {
  expect(othersOf(policy)).toEqual({ keepNewest: { count: 3 } })
})

test('the table of a policy is found with and without its schema', () => {
  const tables = [{ name: 'public.old_orders' }, { name: 'shop.orders' }, { name: 'orders' }]
  expect(tableOf(tables, { table: 'shop.orders' })?.name).toBe('shop.orders')
  expect(tableOf(tables, { table: 'orders' })?.name).toBe('orders')
  expect(tableOf(tables, { table: 'old_orders' })?.name).toBe('public.old_orders')
  expect(tableOf(tables, { table: 'nothing' })).toBeUndefined()
})

test('a policy that moves to another table takes what is suggested for it, and keeps an age that fits', () => {
  const suggested = { name: 'b', description: 'old', table: 's.b', olderThan: { column: 'd', days: 365 } }
  const b = { name: 's.b', dateColumns: [{ column: 'd' }], suggestion: { policy: suggested } }
  expect(moveTo(b, { ...policy, etag: undefined })).toMatchObject(suggested)
  expect(moveTo(b, policy)).toEqual({ ...policy, table: 's.b', olderThan: suggested.olderThan })
  expect(moveTo({ ...b, dateColumns: [{ column: 'c' }] }, policy).olderThan).toEqual(policy.olderThan)
  expect(moveTo({ name: 's.c' }, policy)).toEqual({ ...policy, table: 's.c', olderThan: undefined })
})

test('that no row may refer to a row is said in words', async () => {
  vi.stubGlobal('localStorage', { getItem: () => null })
  vi.stubGlobal('navigator', { languages: ['en-GB'] })
  vi.stubGlobal('document', { documentElement: {} })
  await load('en')
  expect(conditionsOf({ ...policy, unreferenced: true })).toContain(
    'no row of another table refers to it by a foreign key',
  )
})
