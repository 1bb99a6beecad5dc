import { expect, test } from 'vitest'
import { laterRun, splitRule, tasksOf } from './preview'

test('a rule is split into its alternatives', () => {
  expect(
    splitRule('iStatus is 6, of a row of nmsdelivery: iState is 51; or iState is 85 and tsValidity is old'),
  ).toEqual({
    about: 'iStatus is 6, of a row of nmsdelivery',
    alternatives: ['iState is 51', 'iState is 85 and tsValidity is old'],
  })
  expect(splitRule('tsLog older than 180 days (2026-05-26 04:00 UTC)')).toEqual({
    about: '',
    alternatives: ['tsLog older than 180 days (2026-05-26 04:00 UTC)'],
  })
})

test('a dry run is grouped by task, and its tables by rule', () => {
  const share = { guard: 'GUARD_KIND_SHARE', table: 'log', number: '9', limit: '5' } as const
  const [deliveries, ...others] = tasksOf({
    results: [
      { task: 'lists', preview: [] },
      {
        task: 'deliveries',
        preview: [
          {
            table: 'log',
            action: 'PREVIEW_ACTION_DELETE',
            rows: '9',
            bytes: '90',
            rule: 'of a row of d: old',
            guards: [share],
          },
          { table: 'd', action: 'PREVIEW_ACTION_DELETE', rows: '1', bytes: '10', rule: 'old', guards: [share] },
          { table: 'm', action: 'PREVIEW_ACTION_DELETE', rows: '7', rowsCascaded: '7', rule: 'old' },
          { table: 'd', action: 'PREVIEW_ACTION_UPDATE', rows: '2', bytes: '0', rule: 'new' },
          { table: 'wk%', action: 'PREVIEW_ACTION_DROP', rows: '0', tables: '3', bytes: '5', rule: 'gone' },
        ],
      },
    ],
  })
  expect(others).toEqual([])
  expect(deliveries).toMatchObject({
    deleted: 10,
    cascaded: 7,
    updated: 2,
    dropped: 3,
    tables: 3,
    bytes: 105,
    guards: [share],
  })
  expect(deliveries!.rules.map(r => [r.alternatives, r.tables.map(p => [p.table, p.about])])).toEqual([
    [
      ['old'],
      [
        ['log', 'of a row of d'],
        ['d', ''],
        ['m', ''],
      ],
    ],
    [['new'], [['d', '']]],
    [['gone'], [['wk%', '']]],
  ])
})

test('a plan is used by its run and outdated by any other, but not by one that a guard refused', () => {
  const at = (minute: number) => `2026-03-01T04:0${minute}:00Z`
  const plan = { id: 'plan', referenceTime: at(1) }
  const done = { id: 'done', endTime: at(2), results: [{ task: 'a', rowsDeleted: '1' }] }
  const refused = {
    id: 'refused',
    endTime: at(2),
    results: [
      { task: 'a', state: 'TASK_STATE_FAILED', reason: 'REFUSAL_REASON_GUARD' },
      { task: 'b', state: 'TASK_STATE_NOT_RUN' },
    ],
  } as const
  expect(laterRun(plan, [{ ...done, endTime: at(0) }])).toBeUndefined()
  expect(laterRun(plan, [{ id: 'other' }])).toBeUndefined()
  expect(laterRun(plan, [{ ...refused, results: [...refused.results] }])).toBeUndefined()
  expect(laterRun(plan, [{ id: 'its', plan: 'plan' }])?.id).toBe('its')
  expect(laterRun(plan, [done])?.id).toBe('done')
  expect(laterRun(plan, [{ ...refused, results: [...refused.results, ...done.results] }])?.id).toBe('refused')
})
