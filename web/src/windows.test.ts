import { expect, test } from 'vitest'
import { dateOf, draftOf, openHours, weekdays, windowOf } from './windows'

// 2026-03-02 is a Monday
const monday = Date.UTC(2026, 2, 2) / 86400_000
const rows = (open: ReturnType<typeof openHours>) => open.map(({ row, from, to }) => [row, from, to])

test('a date is of its day of the week', () => {
  expect(weekdays.map(day => dateOf(day).getUTCDay())).toEqual([1, 2, 3, 4, 5, 6, 0])
})

test('a window is open from its start to its end, on its days', () => {
  expect(rows(openHours([{ days: ['TUE', 'SUN'], start: '08:30', end: '12:00' }], monday))).toEqual([
    [1, 8.5, 12],
    [6, 8.5, 12],
  ])
  expect(rows(openHours([{ days: ['MON'], start: '08:00', end: '12:00' }], monday + 3))).toEqual([[4, 8, 12]])
  expect(openHours([{ start: '08:00', end: '12:00' }], monday)).toHaveLength(7)
  expect(openHours([], monday)).toEqual([])
})

test('a window that crosses midnight is open on two days, and begins before the first one', () => {
  expect(rows(openHours([{ days: ['SUN'], start: '22:00', end: '06:00' }], monday))).toEqual([
    [0, 0, 6],
    [6, 22, 24],
  ])
  expect(rows(openHours([{ days: ['MON'], start: '22:00', end: '00:00' }], monday))).toEqual([[0, 22, 24]])
  expect(rows(openHours([{ days: ['MON'], start: '00:00', end: '00:00' }], monday))).toEqual([[0, 0, 24]])
})

test('a window is the same after the form', () => {
  const window = { days: ['MON', 'SAT'], start: '22:00', end: '06:00', pace: 'PACE_FAST' } as const
  expect(windowOf(draftOf({ ...window, days: ['SAT', 'MON'] }))).toEqual(window)
  expect(windowOf(draftOf({ start: '22:00', end: '06:00', pace: 'PACE_UNSPECIFIED' }))).toEqual({
    days: [],
    start: '22:00',
    end: '06:00',
    pace: undefined,
  })
  expect(draftOf().key).not.toBe(draftOf().key)
})
