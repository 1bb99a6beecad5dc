import { expect, test } from 'vitest'
import { ratesOf } from './rates'

const at = (seconds: number) => new Date(Date.UTC(2026, 2, 1, 4) + seconds * 1000).toISOString()
const deletedBy = (rates: ReturnType<typeof ratesOf>) =>
  Math.round(rates!.values.reduce((n, rate) => n + (rate * (rates!.to - rates!.from)) / rates!.values.length / 1000, 0))

test('each row of a short run counts, also of tasks without progress events', () => {
  const run = {
    startTime: at(0),
    endTime: at(4),
    results: [
      { task: 'deliveries', startTime: at(0), endTime: at(3), rowsDeleted: '46000', rowsUpdated: '576' },
      { task: 'sessions', startTime: at(3), endTime: at(3), rowsDeleted: '24' },
      { task: 'lists' },
    ],
  }
  const samples = new Map([['deliveries', [{ at: Date.parse(at(1)), rows: 0 }]]])
  const rates = ratesOf(run, samples, 0)!
  expect(deletedBy(rates)).toBe(46600)
  expect(rates.values[0]).toBe(0)
  expect(Math.round(rates.values[30]!)).toBe(23288)
  expect(rates.values.at(-1)).toBe(0)
})

test('an active run has rates up to its last event, and a run without rows has none', () => {
  const run = { startTime: at(0), results: [{ task: 'lists', startTime: at(0), rowsDeleted: '60' }] }
  expect(deletedBy(ratesOf(run, new Map(), Date.parse(at(2))))).toBe(60)
  expect(ratesOf({ ...run, results: [] }, new Map(), Date.parse(at(2)))).toBeUndefined()
  expect(ratesOf({}, new Map(), 0)).toBeUndefined()
})
