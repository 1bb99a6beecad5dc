// What is in the trash, by run and by table.
import { call, query, type TrashAnswer, type TrashEntry } from './api'

export const listTrash = (values: { runId?: string; pageSize?: number; pageToken?: string }, signal?: AbortSignal) =>
  call<TrashAnswer>('GET', query('/v1/trash', values), undefined, signal)

/** Returns all that a run has in the trash. */
export async function trashOf(runId: string, signal?: AbortSignal) {
  const entries: TrashEntry[] = []
  for (let pageToken: string | undefined = ''; pageToken !== undefined;) {
    const page: TrashAnswer = await listTrash({ runId, pageToken }, signal)
    entries.push(...page.entries!)
    pageToken = page.nextPageToken || undefined
  }
  return entries
}

/** Groups entries by their runs, or by what a request with a table is about: the table with its partitions. */
export function by(what: 'run' | 'table', entries: TrashEntry[]) {
  const groups = new Map<string, TrashEntry[]>()
  for (const e of entries) {
    const key = what === 'run' ? e.runId! : e.parentTable || e.table!
    groups.set(key, [...(groups.get(key) ?? []), e])
  }
  return [...groups]
}

export const rowsIn = (entries: TrashEntry[]) => entries.reduce((n, e) => n + Number(e.rows), 0)
