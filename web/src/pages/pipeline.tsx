// The tasks of a run, and how far the run is.
import { call, type Run, type TaskResult } from '../api'
import { Badge, Bar, Code, Said, Table, useLoad } from '../components'
import { number, period, t, type Key } from '../i18n'
import type { Model } from '../model'
import { ended, isRestore, paceOf, rowsOf, stateOf, works } from '../runs'

const selectedOf = (run: Run) => (run.results ?? []).filter(r => r.state !== 'TASK_STATE_SKIPPED' || r.detail)
const sumOf = (run: Run) => (run.results ?? []).reduce((n, r) => n + rowsOf(r), 0)

/** Shows how far an active run is: by rows if its plan says how many there are, and by tasks otherwise. */
export function Overall({ model: { run, live, now } }: { model: Model }) {
  const plan = useLoad(
    signal =>
      run.plan
        ? call<{ run: Run }>('GET', `/v1/runs/${run.plan}`, undefined, signal).then(({ run }) => sumOf(run))
        : Promise.resolve(0),
    [run.plan],
  )
  const tasks = selectedOf(run)
  const at = tasks.findIndex(r => r.state === 'TASK_STATE_RUNNING'),
    current = tasks[at],
    progress = current && live.get(current.task!)
  const rows = sumOf(run),
    expected = plan.value ?? 0
  const through = tasks.filter(r => r.endTime).length + (progress?.expected ? rowsOf(current!) / progress.expected : 0)
  const pace = run.dryRun ? undefined : paceOf(progress?.pace ?? run.pace)
  const seconds = (now - Date.parse(run.startTime!)) / 1000
  return (
    <section class="overall">
      <Bar share={expected > 0 ? rows / expected : through / Math.max(1, tasks.length)} label={t('run.progress')} />
      <p>
        {expected > 0
          ? t('run.of', { rows: number(rows), expected: number(expected) })
          : t('run.sofar', { rows: number(rows) })}
        {rows > 0 && rows < expected && works(run) && (
          <> · {t('run.left', { period: period((seconds * (expected - rows)) / rows) })}</>
        )}
        {current && (
          <>
            {' '}
            · <strong lang="en">{current.task}</strong>{' '}
            {t('run.position', { n: number(at + 1), tasks: number(tasks.length) })}{' '}
            {progress?.object && <Code>{progress.object}</Code>}
          </>
        )}
        {pace && <> · {t('run.pace', { pace: t(`pace.${pace}`) })}</>}
      </p>
    </section>
  )
}

/** Returns how many tables and partitions a task dropped, or detached. */
const removed = (r: TaskResult) => Number(r.tablesDropped ?? 0) + Number(r.partitionsRemoved ?? 0)

/** Returns what is counted of the tasks of a run. */
const countsOf = (run: Run): { title: string; count: (r: TaskResult) => number }[] => [
  ...(isRestore(run)
    ? [
        { title: t('run.restored'), count: (r: TaskResult) => Number(r.rowsRestored ?? 0) },
        { title: t('run.existing'), count: (r: TaskResult) => Number(r.rowsExisting ?? 0) },
        { title: t('run.failed'), count: (r: TaskResult) => Number(r.rowsFailed ?? 0) },
      ]
    : [
        { title: t('run.deleted'), count: (r: TaskResult) => Number(r.rowsDeleted ?? 0) },
        { title: t('run.updated'), count: (r: TaskResult) => Number(r.rowsUpdated ?? 0) },
        { title: t('run.dropped'), count: removed },
      ]),
  { title: t('run.batches'), count: r => Number(r.batches ?? 0) },
]

/** Whether a task has succeeded, and had nothing to do that anybody must know. */
const quiet = (r: TaskResult) => r.state === 'TASK_STATE_SUCCEEDED' && rowsOf(r) + removed(r) === 0 && !r.detail

/** Shows the tasks of a run; those that had nothing to do by their names. */
export function Pipeline({ model }: { model: Model }) {
  const { run, live } = model
  const selected = selectedOf(run)
  const shown = selected.filter(r => !quiet(r)),
    folded = selected.filter(quiet)
  const counts = countsOf(run)
  return (
    <>
      <Table
        label={t('run.pipeline')}
        rows={shown}
        keyOf={r => r.task!}
        columns={[
          {
            title: t('run.task'),
            cell: r => {
              const now = r.state === 'TASK_STATE_RUNNING' ? live.get(r.task!) : undefined
              return (
                <>
                  <span lang="en">{r.task}</span>
                  {now?.object && (
                    <div class="quiet" lang="en">
                      <Code>{now.object}</Code>
                    </div>
                  )}
                  {now?.waits && works(run) && (
                    <div class={`badge ${now.waits.reason === 'THROTTLE_REASON_GENTLE' ? '' : 'warn'}`}>
                      {t('run.waits', {
                        why: t(`throttle.${now.waits.reason!.replace('THROTTLE_REASON_', '')}` as Key),
                      })}{' '}
                      <span lang="en">{now.waits.detail}</span>
                    </div>
                  )}
                  {r.error && (
                    <div class="bad" lang="en">
                      {r.error}
                    </div>
                  )}
                  {!r.error && r.detail && (
                    <div class="quiet">
                      {(r.details?.length ? r.details : [{ text: r.detail }]).map((d, i) => (
                        <div key={i}>
                          <Said message={d} />
                        </div>
                      ))}
                    </div>
                  )}
                </>
              )
            },
          },
          {
            title: t('history.state'),
            cell: r => <Badge state={r.state === 'TASK_STATE_RUNNING' ? stateOf(run) : r.state} />,
          },
          ...(ended(run)
            ? []
            : [
                {
                  title: t('run.progress'),
                  cell: (r: TaskResult) => {
                    const now = r.state === 'TASK_STATE_RUNNING' ? live.get(r.task!) : undefined
                    const done = rowsOf(r)
                    if (!now?.expected) return null
                    return (
                      <>
                        <Bar share={done / now.expected} label={r.task!} />
                        {now.rate > 0 && works(run) && (
                          <div class="quiet">{t('run.left', { period: period((now.expected - done) / now.rate) })}</div>
                        )}
                      </>
                    )
                  },
                },
              ]),
          ...counts.map(({ title, count }) => ({ title, numeric: true, cell: (r: TaskResult) => number(count(r)) })),
          {
            title: t('duration'),
            numeric: true,
            cell: r =>
              r.startTime
                ? period(((r.endTime ? Date.parse(r.endTime) : Date.now()) - Date.parse(r.startTime)) / 1000)
                : '',
          },
        ]}
        foot={
          <tr>
            <td colSpan={ended(run) ? 2 : 3}>{t('run.all')}</td>
            {counts.map(({ title, count }) => (
              <td key={title} class="number" data-title={title}>
                {number(shown.reduce((n, r) => n + count(r), 0))}
              </td>
            ))}
            <td />
          </tr>
        }
      />
      {folded.length > 0 && (
        <p class="quiet">
          {t(isRestore(run) ? 'run.noback' : 'run.nothing')} <span lang="en">{folded.map(r => r.task).join(', ')}</span>
        </p>
      )}
    </>
  )
}
