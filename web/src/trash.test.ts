import { expect, test, vi } from 'vitest'
import { by, rowsIn, trashOf } from './trash'

const entry = (runId: string, task: string, table: string, rows: string) => ({ runId, task, table, rows })

test('entries are grouped by runs, and by tables with their partitions, whichever task deleted from them', () => {
  const entries = [
    entry('b', 'deliveries', 'log', '3'),
    entry('b', 'delivery-logs', 'log', '4'),
    { ...entry('b', 'deliveries', 'log_2019', '2'), parentTable: 'log' },
    entry('b', 'deliveries', 'part', '5'),
    entry('a', 'sessions', 'session', '6'),
  ]
  expect(by('run', entries).map(([run, of]) => [run, rowsIn(of)])).toEqual([
    ['b', 14],
    ['a', 6],
  ])
  expect(by('table', entries.slice(0, 4)).map(([table, of]) => [table, rowsIn(of)])).toEqual([
    ['log', 9],
    ['part', 5],
  ])
})

test('all pages of what a run has in the trash are loaded', async () => {
  const pages = [
    { entries: [entry('a', 'sessions', 'session', '1')], nextPageToken: 'more' },
    { entries: [entry('a', 'visitors', 'visitor', '2')], nextPageToken: '' },
  ]
  const asked: string[] = []
  vi.stubGlobal('fetch', async (path: string) => {
    asked.push(path)
    return new Response(JSON.stringify(pages[asked.length - 1]))
  })
  expect((await trashOf('a')).map(e => e.task)).toEqual(['sessions', 'visitors'])
  expect(asked).toEqual(['/v1/trash?runId=a', '/v1/trash?runId=a&pageToken=more'])
})
