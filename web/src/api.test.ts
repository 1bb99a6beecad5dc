import { expect, test, vi } from 'vitest'
import { ApiError, call, violationAt, withoutFields } from './api'

const error = new ApiError('both', 400, 'INVALID', {}, [
  { field: 'windows[0].days[1]', description: '"MO" is not a day' },
  { field: 'windows[0].start', description: '"25" is not a time of day' },
  { field: 'windows[1].start', description: '"26" is not a time of day' },
])

test('a violation is found at its field, and that of an element at its list', () => {
  expect(violationAt(error, 'windows[0].start')).toBe('"25" is not a time of day')
  expect(violationAt(error, 'windows[0].days')).toBe('"MO" is not a day')
  expect(violationAt(error, 'windows[0].end')).toBeUndefined()
  expect(violationAt(error, 'windows')).toBeUndefined()
  expect(violationAt(new Error('no'), 'windows')).toBeUndefined()
  expect(violationAt(undefined, 'windows')).toBeUndefined()
})

test('an error says the rest of what is wrong', () => {
  const rest = withoutFields(error, ['windows[0].days', 'windows[0].start']) as ApiError
  expect([rest.message, rest.status, rest.reason]).toEqual([
    'windows[1].start "26" is not a time of day',
    400,
    'INVALID',
  ])
  expect(withoutFields(error, ['windows[0].days', 'windows[0].start', 'windows[1].start'])).toBeUndefined()
  const stale = new ApiError('somebody else has changed it', 409)
  expect(withoutFields(stale, ['schedule.cron'])).toBe(stale)
  expect(withoutFields(undefined, ['schedule.cron'])).toBeUndefined()
})

test('what is read is read again if the server cannot answer, and nothing else', async () => {
  vi.useFakeTimers()
  const asked: string[] = []
  const answers = (...statuses: number[]) =>
    vi.stubGlobal('fetch', async (path: string, { method }: RequestInit) => {
      asked.push(`${method} ${path}`)
      return Response.json({ message: 'no' }, { status: statuses.shift() ?? 200 })
    })
  const statusOf = async (method: string) => {
    const ended = call(method, '/x').then(
      () => 200,
      (error: ApiError) => error.status,
    )
    await vi.runAllTimersAsync()
    return [await ended, asked.splice(0).length]
  }
  answers(503, 503)
  expect(await statusOf('GET')).toEqual([200, 3])
  answers(503, 503, 503)
  expect(await statusOf('GET')).toEqual([503, 3])
  answers(404)
  expect(await statusOf('GET')).toEqual([404, 1])
  answers(503)
  expect(await statusOf('POST')).toEqual([503, 1])
})
