// The windows of the schedule: what the form edits, and when they are open.
import type { Window } from './api'
import { paceOf } from './runs'

/** The days of the week as in the API, from Monday on. */
export const weekdays = ['MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT', 'SUN']

/** A Monday, in UTC. */
const monday = Date.UTC(2024, 0, 1)
const dayLength = 86400_000

/** Returns a date that is such a day of the week, in UTC. */
export const dateOf = (day: string) => new Date(monday + weekdays.indexOf(day) * dayLength)

/** A window in the form. key tells apart windows that are equal. */
export type Draft = { key: number; days: string[]; start: string; end: string; pace: string }

let keys = 0

export const draftOf = ({ days = [], start = '', end = '', pace }: Window = {}): Draft => ({
  key: keys++,
  days,
  start,
  end,
  pace: paceOf(pace) ? pace! : '',
})

/** Returns the window of the API, with its days in the order of the week. */
export const windowOf = ({ days, start, end, pace }: Draft) => ({
  days: weekdays.filter(day => days.includes(day)),
  start,
  end,
  pace: pace || undefined,
})

const hoursOf = (clock = '') => {
  const [hours = 0, minutes = 0] = clock.split(':').map(Number)
  return hours + minutes / 60
}

/** Returns when windows are open in the seven days from a day on, which is counted from 1970: the row of each day, and hours. */
export function openHours(windows: Window[], first: number) {
  const open: { row: number; from: number; to: number }[] = []
  for (let row = -1; row < 7; row++) {
    // 1970 began on a Thursday
    const day = weekdays[(first + row + 3) % 7]!
    for (const { days = [], start, end } of windows) {
      if (days.length > 0 && !days.includes(day)) continue
      const from = hoursOf(start),
        to = hoursOf(end)
      if (to > from) open.push({ row, from, to })
      else open.push({ row, from, to: 24 }, { row: row + 1, from: 0, to })
    }
  }
  return open.filter(({ row, from, to }) => row >= 0 && row < 7 && to > from)
}
