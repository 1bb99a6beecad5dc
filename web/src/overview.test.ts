import { expect, test } from 'vitest'
import { byDay, isWhole, judgedRuns } from './overview'

const at = (day: number) => new Date(2026, 2, day, 4).toISOString()
const skipped = { task: 'lists', state: 'TASK_STATE_SKIPPED' } as const
const whole = (id: string) => ({ id, endTime: at(1), results: [{ ...skipped, startTime: at(1) }] })
const part = (id: string) => ({ id, endTime: at(1), results: [skipped, { task: 'sessions' }] })

test('a run is whole unless a task was not selected, other than a purge', () => {
  expect(isWhole(whole('a'))).toBe(true)
  expect(isWhole(part('a'))).toBe(false)
  expect(isWhole({ results: [{ ...skipped, task: 'forms/old' }] })).toBe(true)
})

test('the last whole run and the last scheduled run are judged, and no run of a single task', () => {
  const runs = [{ id: 'active' }, part('manual'), whole('whole'), part('scheduled'), whole('older')]
  expect(judgedRuns(runs, { lastRunId: 'scheduled' }).judged.map(run => run.id)).toEqual(['whole', 'scheduled'])
  expect(judgedRuns(runs, { lastRunId: 'whole' }).judged.map(run => run.id)).toEqual(['whole'])
  expect(judgedRuns([part('manual')], {}).judged).toEqual([])
})

test('there are 30 days, with runs or without', () => {
  const run = (day: number, rowsDeleted: string) => ({
    createTime: at(day),
    startTime: at(day),
    endTime: at(day),
    results: [{ rowsDeleted }],
  })
  const days = byDay([run(10, '3'), run(10, '4'), run(8, '5')], new Date(2026, 2, 10, 12))
  expect(days).toHaveLength(30)
  expect(days.slice(-3).map(day => day.rows)).toEqual([5, 0, 7])
  expect(days[0]!.at.toDateString()).toBe(new Date(2026, 1, 9).toDateString())
  expect(byDay([]).every(day => day.runs.length === 0)).toBe(true)
})
