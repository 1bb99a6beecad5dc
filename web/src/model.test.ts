import { beforeEach, expect, test } from 'vitest'
import type { RunEvent } from './api'
import { Model } from './model'
import { stateOf } from './runs'

const time = '2026-03-01T04:00:00Z'
const line = (sequence: number): RunEvent => ({
  sequence: String(sequence),
  time,
  log: { level: 'LOG_LEVEL_INFO', task: 'lists', message: `line ${sequence}` },
})

/** Returns events, every nth of them a log line and the others progress. */
const logOf = (events: number, nth = 1): RunEvent[] =>
  Array.from({ length: events }, (_, i) =>
    (i + 1) % nth === 0
      ? line(i + 1)
      : { sequence: String(i + 1), time, taskProgress: { task: 'lists', rowsDeleted: String(i + 1) } },
  )

const read = (events: RunEvent[]) => async (after: number, upTo: number) => events.slice(after, upTo)
const sequences = (model: Model) => model.log.map(entry => entry.sequence)

let model: Model
beforeEach(() => {
  model = new Model({ lastSequence: '0', results: [{ task: 'lists' }, { task: 'deliveries' }] })
})

test('the newest 500 events are loaded first', async () => {
  const events = logOf(1200)
  model = new Model({ lastSequence: '1200' })
  await model.load(read(events))
  expect(sequences(model)).toEqual(events.slice(700).map(e => Number(e.sequence)))
  expect([model.first, model.upTo, model.last, model.seen]).toEqual([700, 1200, 1200, 500])
})

test('events move tasks and the run on', () => {
  model.take({ sequence: '1', time, runStarted: { run: { state: 'RUN_STATE_RUNNING', lastSequence: '1' } } })
  model.take({ sequence: '2', time, taskStarted: { task: 'lists' } })
  expect(model.run.state).toBe('RUN_STATE_RUNNING')
  expect(model.run.results![0]).toMatchObject({ state: 'TASK_STATE_RUNNING', startTime: time })

  model.take({
    sequence: '3',
    time,
    taskProgress: { task: 'lists', object: 'NmsGroup', rowsDeleted: '7', rowsExpected: '0', rowsPerSecond: 3.5 },
  })
  expect(model.run.results![0]!.rowsDeleted).toBe('7')
  expect(model.live.get('lists')).toEqual({
    object: 'NmsGroup',
    expected: 0,
    rate: 3.5,
    waits: undefined,
    pace: undefined,
  })
  expect(model.samples.get('lists')).toEqual([{ at: Date.parse(time), rows: 7 }])
  model.take({ sequence: '4', time, taskProgress: { task: 'lists', rowsRestored: '8' } })
  expect([model.run.results![0]!.rowsRestored, model.samples.get('lists')!.at(-1)!.rows]).toEqual(['8', 8])

  model.take({ sequence: '5', time, taskFinished: { result: { task: 'lists', state: 'TASK_STATE_SUCCEEDED' } } })
  model.take({ sequence: '6', time, runFinished: { run: { state: 'RUN_STATE_SUCCEEDED' } } })
  expect(model.run.results![0]!.state).toBe('TASK_STATE_SUCCEEDED')
  expect(model.run.results![1]!.state).toBeUndefined()
  expect(model.run.state).toBe('RUN_STATE_SUCCEEDED')
  expect([model.last, model.seen]).toEqual([6, 6])
})

const said = (sequence: number, code: string, params: Record<string, string>): RunEvent => ({
  sequence: String(sequence),
  time,
  log: { code, params, message: code },
})

test('messages pause, resume and pace the run', () => {
  model.run.startTime = time
  model.take(said(1, 'RUN_PAUSED', { caller: 'schedule' }))
  expect(model.run).toMatchObject({ state: 'RUN_STATE_PAUSED', pauseTime: time, pausedBy: 'schedule' })
  model.take({ ...said(2, 'RUN_PAUSED', { caller: 'ann' }), time: '2026-03-01T05:00:00Z' })
  expect(model.run).toMatchObject({ pauseTime: time, pausedBy: 'ann' }) // it goes on
  model.take({ sequence: '3', time, taskProgress: { task: 'lists' } }) // of the last batch
  expect(model.run.state).toBe('RUN_STATE_PAUSED')
  model.take(said(4, 'RUN_CONTINUED', { caller: 'ben' }))
  expect(model.run).toMatchObject({ state: 'RUN_STATE_RUNNING', pauseTime: undefined, pausedBy: '' })
  model.take(said(5, 'PACE_CHANGED', { pace: 'GENTLE', caller: 'ben' }))
  expect(model.run.pace).toBe('PACE_GENTLE')
})

test('messages say until when the run waits', () => {
  model.run.startTime = time
  model.take(said(1, 'RUN_AWAITS_WINDOW', { time: '2026-03-01T20:00:00Z' }))
  model.take(said(2, 'RUN_OVERTAKEN', { run: 'another', caller: 'ann' }))
  expect(model.run).toMatchObject({
    state: 'RUN_STATE_PAUSED',
    pauseTime: time,
    pausedBy: 'schedule',
    windowOpenTime: '2026-03-01T20:00:00Z',
    waitsForRunId: 'another',
  })
  model.take(said(3, 'RUN_PAUSED', { caller: 'ann' }))
  expect(model.run).toMatchObject({ pausedBy: 'ann', windowOpenTime: undefined, waitsForRunId: 'another' })
  model.take(said(4, 'RUN_CONTINUED', { caller: 'ben' }))
  expect(model.run).toMatchObject({ state: 'RUN_STATE_RUNNING', windowOpenTime: undefined, waitsForRunId: '' })
})

test('a run that had not started is queued after a pause', () => {
  model.take(said(1, 'RUN_PAUSED', { caller: 'ann' }))
  model.take(said(2, 'RUN_CONTINUED', { caller: 'ann' }))
  expect(model.run.state).toBe('RUN_STATE_QUEUED')
})

test('the response to a change is applied unless later events are known', () => {
  const paused = { state: 'RUN_STATE_PAUSED', pauseTime: time, pausedBy: 'ann', pace: 'PACE_FAST' } as const
  model.take(said(1, 'RUN_PAUSED', { caller: 'ann' }))
  model.take(said(2, 'RUN_CONTINUED', { caller: 'ben' }))
  model.change({ ...paused, lastSequence: '1' })
  expect(model.run.state).toBe('RUN_STATE_QUEUED')
  model.change({ ...paused, lastSequence: '3', results: [] })
  expect(model.run).toMatchObject(paused)
  expect(model.run.results).toHaveLength(2)
})

test('the progress says why a gentle run waits', () => {
  const throttledBy = { reason: 'THROTTLE_REASON_GENTLE', detail: 'commits take 9 ms' } as const
  model.take({ sequence: '1', time, taskProgress: { task: 'lists', pace: 'PACE_GENTLE', throttledBy } })
  expect(model.live.get('lists')).toMatchObject({ pace: 'PACE_GENTLE', waits: throttledBy })
})

test('an unknown number of expected rows is not 0', () => {
  model.take({ sequence: '1', time, taskProgress: { task: 'lists' } })
  expect(model.live.get('lists')!.expected).toBeUndefined()
})

test('at most 1,000 lines are kept, the newest ones, and 600 samples of a task, of its whole time', () => {
  for (const event of logOf(1500)) model.take(event)
  expect(sequences(model)[0]).toBe(501)
  expect(model.log).toHaveLength(1000)
  expect(model.first).toBe(500)
  for (const event of logOf(700, 1000)) model.take({ ...event, sequence: String(model.last + 1) })
  const rows = model.samples.get('lists')!.map(sample => sample.rows)
  expect([rows.length, rows[0], rows.at(-1)]).toEqual([400, 2, 700])
})

test('earlier events are loaded until they have a line, and push out the newest lines', async () => {
  const events = logOf(3000, 2000) // the only line is 2000
  model = new Model({ lastSequence: '3000' })
  await model.load(read(events))
  expect(model.log).toEqual([])
  await model.earlier(read(events))
  expect(sequences(model)).toEqual([2000])

  const full = logOf(1500)
  model = new Model({ lastSequence: '1500' })
  await model.load(read(full))
  await model.earlier(read(full))
  await model.earlier(read(full))
  expect([sequences(model)[0], sequences(model).at(-1)]).toEqual([1, 1000])
  expect([model.first, model.upTo, model.seen]).toEqual([0, 1000, 1500])
})

test('an event that arrives while earlier lines are shown is counted and not appended; later loads it', async () => {
  const events = logOf(1501)
  model = new Model({ lastSequence: '1500' })
  await model.load(read(events))
  await model.earlier(read(events))
  await model.earlier(read(events))
  model.take(events[1500]!)
  expect([model.last, model.upTo]).toEqual([1501, 1000])
  await model.later(read(events))
  await model.later(read(events))
  expect(sequences(model).at(-1)).toBe(1501)
  expect(model.upTo).toBe(model.last)
  expect(model.log).toHaveLength(1000)
})

test('rewind removes the lines after an event', async () => {
  model = new Model({ lastSequence: '10' })
  await model.load(read(logOf(10)))
  model.rewind(4)
  expect(sequences(model)).toEqual([1, 2, 3, 4])
  expect([model.last, model.upTo]).toEqual([4, 4])
  model.take(line(5))
  expect(sequences(model)).toEqual([1, 2, 3, 4, 5])
})

test('an interrupted run gets on with its next event', () => {
  model.change({ state: 'RUN_STATE_RUNNING', interrupted: true, lastSequence: '0' })
  expect(stateOf(model.run)).toBe('INTERRUPTED')
  model.take(line(1))
  expect(stateOf(model.run)).toBe('RUN_STATE_RUNNING')
})
