import { expect, test } from 'vitest'
import { spaceOf, stateOf, total } from './runs'

test('a run that no replica has is shown as interrupted', () => {
  expect(stateOf({ state: 'RUN_STATE_RUNNING', interrupted: true })).toBe('INTERRUPTED')
  expect(stateOf({ state: 'RUN_STATE_RUNNING' })).toBe('RUN_STATE_RUNNING')
})

test('the rows of a restore are those that came back, and of other runs those that were deleted', () => {
  const results = [{ rowsDeleted: '1', rowsRestored: '20' }, { rowsDeleted: '2' }]
  expect(total({ results })).toBe(3)
  expect(total({ results, restoredRunId: 'a' })).toBe(20)
})

test('the space of a table is before its first task and after its last, and tables without a change are left out', () => {
  const space = (table: string, rowsDeleted: string, before: string, after: string) => ({
    table,
    rowsDeleted,
    tableBytesBefore: before,
    tableBytesAfter: after,
    indexBytesBefore: '1',
    indexBytesAfter: '1',
    deadBytes: '2',
  })
  expect(
    spaceOf({
      results: [
        { task: 'deliveries', space: [space('log', '5', '100', '100'), space('parts', '0', '8', '8')] },
        { task: 'delivery-logs', space: [space('log', '7', '100', '100'), space('other', '20', '9', '9')] },
        { task: 'statistics', space: [space('log', '0', '100', '60'), space('shrunk', '0', '4', '2')] },
      ],
    }),
  ).toEqual([
    { table: 'other', deleted: 20, before: 10, after: 10, reusable: 2 },
    { table: 'log', deleted: 12, before: 101, after: 61, reusable: 2 },
    { table: 'shrunk', deleted: 0, before: 5, after: 3, reusable: 2 },
  ])
})
