import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { ApiError, type RunEvent } from './api'
import { between, follow } from './follow'

const line = (sequence: number, logGeneration = '1'): RunEvent => ({
  sequence: String(sequence),
  logGeneration,
  log: { message: `line ${sequence}` },
})
const end = (sequence: number): RunEvent => ({ sequence: String(sequence), logGeneration: '1', runFinished: {} })

/** Responses to the requests for the stream, in order: events, then the end or an error. */
let responses: { events: RunEvent[]; error?: Error; open?: boolean }[]
let requested: string[]

vi.mock('./api', async original => ({
  ...(await original<typeof import('./api')>()),
  stream: async function* (_method: string, path: string, _body: unknown, signal?: AbortSignal) {
    requested.push(path)
    const { events, error, open } = responses.shift() ?? { events: [], open: true }
    for (const event of events) yield { event }
    if (error) throw error
    if (open) await new Promise((_, reject) => signal!.addEventListener('abort', () => reject(new Error('aborted'))))
  },
}))

let page: EventTarget & { hidden: boolean }
let stop: AbortController
let seen: string[]
const follower = {
  event: (event: RunEvent) => void seen.push(event.sequence!),
  rewind: (after: number) => void seen.push(`rewind ${after}`),
  trouble: (message: string) => void (message && seen.push(message)),
}

beforeEach(() => {
  vi.useFakeTimers()
  vi.stubGlobal('navigator', {}) // as in an insecure context, without locks
  page = Object.assign(new EventTarget(), { hidden: false })
  vi.stubGlobal('document', page)
  stop = new AbortController()
  ;[responses, requested, seen] = [[], [], []]
})
afterEach(async () => {
  stop.abort()
  await vi.runAllTimersAsync()
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

test('each event arrives once, over a stream that breaks', async () => {
  responses = [{ events: [line(4), line(5)], error: new Error('cut') }, { events: [line(5), line(6), end(7)] }]
  follow('id', 3, follower, stop.signal)
  await vi.advanceTimersByTimeAsync(1000)
  expect(seen).toEqual(['4', '5', 'cut', '6', '7'])
  expect(requested).toEqual([
    '/v1/runs/id/events?afterSequence=3&logGeneration=0',
    '/v1/runs/id/events?afterSequence=5&logGeneration=1',
  ])
})

test('a silent stream is read again after ten seconds', async () => {
  responses = [{ events: [line(1)], open: true }, { events: [end(2)] }]
  follow('id', 0, follower, stop.signal)
  await vi.advanceTimersByTimeAsync(9_000)
  expect(requested).toHaveLength(1)
  await vi.advanceTimersByTimeAsync(2_000)
  expect(seen).toEqual(['1', '2'])
})

test('after lost events it goes on from the last one that is left', async () => {
  const lost = new ApiError('replaced', 200, 'LOG_REPLACED', { after_sequence: '2' })
  responses = [{ events: [line(1), line(2), line(3)], error: lost }, { events: [line(3, '9'), end(4)] }]
  follow('id', 0, follower, stop.signal)
  await vi.advanceTimersByTimeAsync(1000)
  expect(seen).toEqual(['1', '2', '3', 'rewind 2', '3', '4'])
  expect(requested[1]).toBe('/v1/runs/id/events?afterSequence=2&logGeneration=0')
})

test('a rejected request waits for more than a pause', async () => {
  responses = [{ events: [], error: new ApiError('not allowed', 403) }]
  follow('id', 0, follower, stop.signal)
  await vi.advanceTimersByTimeAsync(600)
  expect(seen).toEqual(['not allowed'])
  expect(requested).toHaveLength(1)
})

test('a hidden page reads nothing until it is shown', async () => {
  page.hidden = true
  responses = [{ events: [end(1)] }]
  follow('id', 0, follower, stop.signal)
  await vi.advanceTimersByTimeAsync(5_000)
  expect(requested).toEqual([])
  page.hidden = false
  page.dispatchEvent(new Event('visibilitychange'))
  await vi.advanceTimersByTimeAsync(100)
  expect(seen).toEqual(['1'])
})

test('between returns the events up to one, also of a run that failed', async () => {
  responses = [
    { events: [line(2), line(3), line(4)], open: true },
    { events: [line(2), end(3)], error: new ApiError('the run failed', 200) },
    { events: [], error: new ApiError('gone', 404) },
  ]
  expect((await between('id', 1, 3)).map(e => e.sequence)).toEqual(['2', '3'])
  expect((await between('id', 1, 9)).map(e => e.sequence)).toEqual(['2', '3'])
  await expect(between('id', 1, 9)).rejects.toThrow('gone')
  expect(await between('id', 4, 4)).toEqual([])
  expect(requested).toHaveLength(3)
})
