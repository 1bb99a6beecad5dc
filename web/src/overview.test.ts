import { expect, test } from 'vitest'
import { byDay, isWhole, judgedRuns } from './overview'

const at = (day: number) => new Date(2026, 2, day, 4).toISOString()
const skipped = { task: 'lists', state: 'TASK_STATE_SKIPPED' } as const
const whole = (id: string) => ({ id, endTime: at(1), results: [{ ...skipped, startTime: at(1) }] })
const part = (id: string) => ({ id, endTime: at(1), results: [skipped, { task: 'sessions' }] })

const tasks = [
  { name: 'lists' },
  { name: 'policy/carts' },
  { name: 'policy/off', disabled: true },
  { name: 'forms/off', disabled: true },
]

test('a run is whole unless a task that is enabled was not selected', () => {
  const without = (task: string) => ({ results: [{ ...skipped, task }] })
  expect(isWhole(whole('a'), tasks)).toBe(true)
  expect(isWhole(part('a'), tasks)).toBe(false)
  expect(isWhole({ ...whole('a'), restoredRunId: 'b' }, tasks)).toBe(false)
  expect(isWhole(without('policy/carts'), tasks)).toBe(false)
  for (const task of ['policy/off', 'forms/off', 'policy/deleted']) expect(isWhole(without(task), tasks)).toBe(true)
})

test('the last whole run and the last scheduled run are judged, and no run of a single task', () => {
  const runs = [{ id: 'active' }, part('manual'), whole('whole'), part('scheduled'), whole('older')]
  expect(judgedRuns(runs, { lastRunId: 'scheduled' }, tasks).judged.map(run => run.id)).toEqual(['whole', 'scheduled'])
  expect(judgedRuns(runs, { lastRunId: 'whole' }, tasks).judged.map(run => run.id)).toEqual(['whole'])
  expect(judgedRuns([part('manual')], {}, tasks).judged).toEqual([])
})

test('there are 30 days, with runs or without', () => {
  const run = (day: number, rowsDeleted: string) => ({
    createTime: at(day),
    startTime: at(day),
    endTime: at(day),
    results: [{ rowsDeleted }],
  })
  const restore = { ...run(8, '0'), restoredRunId: 'a' }
  const days = byDay([run(10, '3'), run(10, '4'), run(8, '5'), restore], new Date(2026, 2, 10, 12))
  expect(days).toHaveLength(30)
  expect(days.slice(-3).map(day => [day.runs.length, day.rows])).toEqual([
    [1, 5],
    [0, 0],
    [2, 7],
  ])
  expect(days[0]!.at.toDateString()).toBe(new Date(2026, 1, 9).toDateString())
  expect(byDay([]).every(day => day.runs.length === 0)).toBe(true)
})
