// The result of a dry run, grouped for the page: its tasks, and in each task the tables of a rule.
import type { Run, TablePreview, TrippedGuard } from './api'
import { ended, rowsOf } from './runs'

export const drops = (table: TablePreview) => table.action === 'PREVIEW_ACTION_DROP'

type RuleTables = { alternatives: string[]; tables: (TablePreview & { about: string })[] }
export type TaskPreview = {
  task: string
  deleted: number
  cascaded: number
  updated: number
  dropped: number
  partitions: number
  tables: number
  bytes: number
  guards: TrippedGuard[]
  rules: RuleTables[]
}

/** Splits a rule into the alternatives that it lists, and the rows that they are about. */
export function splitRule(rule: string) {
  const [, about = '', rest = rule] = /^(.*?of a row of [^:]+): (.*)$/s.exec(rule) ?? []
  return { about, alternatives: rest.split('; or ') }
}

export const keyOfGuard = (g: TrippedGuard) => `${g.guard} ${g.table}`

/** Returns the tasks of a dry run that would do something. A rule that several tables share comes once. */
export function tasksOf(run: Run): TaskPreview[] {
  return (run.results ?? []).flatMap(({ task = '', preview }) => {
    if (!preview?.length) return []
    const rules = new Map<string, RuleTables>()
    for (const table of preview) {
      const { about, alternatives } = splitRule(table.rule ?? '')
      const key = alternatives.join()
      if (!rules.has(key)) rules.set(key, { alternatives, tables: [] })
      rules.get(key)!.tables.push({ ...table, about })
    }
    const sum = (value: (p: TablePreview) => string | undefined) =>
      preview.reduce((n, p) => n + Number(value(p) ?? 0), 0)
    const rows = (action: TablePreview['action']) => sum(p => (p.action === action ? p.rows : '0'))
    // foreign keys also change rows, which the command line counts with the updated ones
    const cascaded = sum(p => (p.action === 'PREVIEW_ACTION_DELETE' ? p.rowsCascaded : '0'))
    return {
      task,
      deleted: rows('PREVIEW_ACTION_DELETE') - cascaded,
      cascaded,
      updated: rows('PREVIEW_ACTION_UPDATE'),
      dropped: sum(p => p.tables),
      partitions: sum(p => p.partitions),
      tables: new Set(preview.filter(p => !drops(p)).map(p => p.table)).size,
      bytes: sum(p => p.bytes),
      guards: [...new Map(preview.flatMap(p => p.guards ?? []).map(g => [keyOfGuard(g), g])).values()],
      rules: [...rules.values()],
    }
  })
}

/** Whether guards refused a run before it changed anything. */
function refused(run: Run) {
  const results = run.results ?? []
  return (
    [run, ...results].some(r => r.reason === 'REFUSAL_REASON_GUARD') &&
    results.every(
      r =>
        rowsOf(r) + Number(r.tablesDropped ?? 0) + Number(r.partitionsRemoved ?? 0) === 0 &&
        (r.reason === 'REFUSAL_REASON_GUARD' || /SKIPPED|NOT_RUN/.test(r.state ?? '')),
    )
  )
}

/** Returns the run that uses a plan, or that made it outdated. */
export const laterRun = (plan: Run, runs: Run[]) =>
  runs.find(run =>
    ended(run) ? Date.parse(run.endTime!) > Date.parse(plan.referenceTime!) && !refused(run) : run.plan === plan.id,
  )
