import { expect, test } from 'vitest'
import { conditionsOf, draftOf, parseDraft } from './policies'

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

test('a draft has what can be edited', () => {
  const policy = { name: 'a', table: 't', description: '', filters: [], olderThan: { column: 'c', days: 1 }, etag: 'x' }
  expect(parseDraft(draftOf(policy))).toEqual({ table: 't', olderThan: { column: 'c', days: 1 } })
  expect(() => parseDraft('{')).toThrow(SyntaxError)
})
