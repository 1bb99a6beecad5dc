// The state of the service at a glance: problems with links to the pages that fix them, the last and the next run.
import type { ComponentChildren } from 'preact'
import { call, query, type GuardsAnswer, type OptionsAnswer, type Run, type Schedule, type Task } from '../api'
import { Bars, type Stack } from '../chart'
import { Badge, Moment, Page, Said, Section, Show, useLoad } from '../components'
import { day, number, period, said, short, t, type Message } from '../i18n'
import type { Context } from '../context'
import { byDay, judgedRuns, loadRuns, loadWarnings } from '../overview'
import { awaitsWindow, ended, isPaused, isRestore, nameOf, durationOf, stateOf, total } from '../runs'

const failed = (run: Run) => run.state === 'RUN_STATE_FAILED'

type Status = {
  runs: Run[]
  schedule: Schedule
  tasks: Task[]
  guards?: GuardsAnswer
  options?: OptionsAnswer
  left?: { deliveries: unknown[] }
}

async function loadStatus({ may, server }: Context, signal: AbortSignal): Promise<Status> {
  const get = <T,>(path: string) => call<T>('GET', path, undefined, signal)
  const [{ runs }, { schedule }, { tasks }, guards, options, left] = await Promise.all([
    get<{ runs: Run[] }>(query('/v1/runs', { pageSize: 50, dryRun: false })),
    get<{ schedule: Schedule }>('/v1/schedule'),
    get<{ tasks: Task[] }>('/v1/tasks'),
    may('ADMIN') ? get<GuardsAnswer>('/v1/guards') : undefined,
    server.campaign ? get<OptionsAnswer>('/v1/options') : undefined,
    server.campaign ? get<{ deliveries: unknown[] }>(query('/v1/mid-sourcing/leftovers', { pageSize: 1 })) : undefined,
  ])
  // Runs by hand may have pushed the last scheduled one out of the list.
  const id = schedule.lastRunId
  if (id && !runs.some(run => run.id === id)) runs.push((await get<{ run: Run }>(`/v1/runs/${id}`)).run)
  return { runs, schedule, tasks, guards, options, left }
}

/** Returns the problems to look at, each with a link to the page that fixes it. */
function problems({ runs, schedule, tasks, options, guards, left }: Status) {
  const items: ComponentChildren[] = []
  const { whole, judged } = judgedRuns(runs, schedule, tasks)
  const add = (words: string, href: string, link: string) =>
    items.push(
      <>
        {words} <a href={href}>{link}</a>
      </>,
    )
  const paused = runs.find(run => isPaused(run) && !awaitsWindow(run))
  if (paused) add(t('overview.paused', { caller: paused.pausedBy ?? '' }), `#/runs/${paused.id}`, t('overview.see'))
  for (const run of judged) {
    const see = `#/runs/${run.id}`
    const results = run.results ?? []
    const names = results.filter(r => r.state === 'TASK_STATE_FAILED').map(r => r.task)
    const which = t(run.id === schedule.lastRunId ? 'overview.scheduled' : 'overview.whole')
    if (failed(run))
      add(t('overview.failed', { run: which, tasks: names.join(', ') || (run.error ?? '') }), see, t('overview.see'))
    if (run.state === 'RUN_STATE_CANCELLED') add(t('overview.cancelled', { run: which }), see, t('overview.see'))
    const rows = results.reduce((n, r) => n + Number(r.rowsRetained), 0)
    if (rows > 0 || results.some(r => Number(r.tablesRetained) > 0))
      add(t('overview.stays', { run: which, rows: number(rows) }), see, t('overview.see'))
  }
  if (!whole && runs.some(ended)) add(t('overview.nowhole'), '#/preview', t('preview.title'))
  const tripped = guards
    ? (guards.refusals ?? []).map(l => ({ guard: nameOf(l.guard?.guard), table: l.guard?.table }))
    : (whole?.results ?? [])
        .filter(r => r.reason === 'REFUSAL_REASON_GUARD')
        .map(r => ({ guard: r.metadata?.guard, table: r.metadata?.table }))
  if (tripped.length > 0) {
    add(
      t('overview.tripped', { guards: tripped.map(l => `${l.guard} (${l.table})`).join(', ') }),
      '#/preview',
      t('preview.title'),
    )
  }
  if (!schedule.enabled && runs.some(ended)) add(t('overview.unscheduled'), '#/schedule', t('schedule.title'))
  for (const warning of schedule.warnings ?? []) add(said(warning).text, '#/schedule', t('schedule.title'))
  for (const invalid of options?.invalid ?? [])
    add(t('overview.invalid', { option: invalid.option ?? '' }), '#/retention', t('retention.title'))
  if (left?.deliveries.length) add(t('overview.remote'), '#/about', t('about.title'))
  return items
}

const listed = 5

/** Shows what needs attention, with each warning of a run, or that nothing does. */
function Attention({ status }: { status: Status }) {
  const { whole } = judgedRuns(status.runs, status.schedule, status.tasks)
  const run = whole ?? status.runs.find(ended)
  const warnings = useLoad<Message[]>(signal => (run ? loadWarnings(run, signal) : Promise.resolve([])), [run?.id])
  // Two services that clean one database come first.
  const [urgent, others] = [true, false].map(first =>
    (warnings.value ?? [])
      .filter(({ code }) => (code === 'APPLICATION_CLEANUP_STARTED') === first)
      .map(message => (
        <>
          <Said message={message} /> <a href={`#/runs/${run!.id}`}>{t('overview.see')}</a>
        </>
      )),
  )
  const items = [...urgent!, ...problems(status), ...others!]
  const list = (shown: ComponentChildren[]) => (
    <ul>
      {shown.map((item, i) => (
        <li key={i}>{item}</li>
      ))}
    </ul>
  )
  if (items.length > 0)
    return (
      <div class="notice">
        <p>{t('overview.attention')}</p>
        {list(items.slice(0, listed))}
        {items.length > listed && (
          <details>
            <summary>{t('overview.more', { n: number(items.length - listed) })}</summary>
            {list(items.slice(listed))}
          </details>
        )}
      </div>
    )
  return whole?.state === 'RUN_STATE_SUCCEEDED' && warnings.value ? (
    <div class="notice good">
      <p>{t('overview.well')}</p>
    </div>
  ) : null
}

/** Returns the last 30 days as bars, stacked by the five tasks with the most rows and all others. */
function chart(runs: Run[]) {
  const byTask = new Map<string, number>()
  for (const r of runs.flatMap(run => run.results ?? []))
    byTask.set(r.task!, (byTask.get(r.task!) ?? 0) + Number(r.rowsDeleted ?? 0))
  const largest = [...byTask]
    .filter(([, n]) => n > 0)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 5)
    .map(([task]) => task)
  const stacks = byDay(runs).map(({ at, runs, rows, duration }, i): Stack => {
    const results = runs.flatMap(run => run.results ?? [])
    return {
      key: at.toISOString(),
      href: runs.length === 1 ? `#/runs/${runs[0]!.id}` : runs.length > 1 ? '#/runs' : undefined,
      parts: [...largest, ''].map(task =>
        results
          .filter(r => (task === '' ? !largest.includes(r.task!) : r.task === task))
          .reduce((n, r) => n + Number(r.rowsDeleted ?? 0), 0),
      ),
      line: duration,
      failed: runs.some(failed),
      tick: i % 7 === 1 ? day(at).replace(/[ ,.]*\d{4}年?/, '') : undefined,
      title: `${day(at)}: ${t('overview.bar', { rows: number(rows), period: period(duration) })}`,
    }
  })
  return { stacks, largest, others: stacks.some(s => s.parts.at(-1)! > 0) }
}

/** Shows the first steps: to a task if there is none, and then to a run. */
function Welcome({ context, tasks }: { context: Context; tasks: Task[] }) {
  const { may, server } = context
  const pages = [
    ...(tasks.length === 0
      ? (['tables', 'policies'] as const)
      : (['preview', server.campaign ? 'retention' : 'policies', 'schedule'] as const)),
    ...(server.userData && may('ADMIN') ? (['userdata'] as const) : []),
  ]
  return (
    <>
      <p class="welcome">{t(tasks.length === 0 ? 'overview.notasks' : 'overview.welcome')}</p>
      <ol class="cards">
        {pages.map(page => (
          <li key={page} class="card">
            <p class="big">
              <a href={`#/${page}`}>{t(`${page}.title`)}</a>
            </p>
            <p>{t(`${page}.intro`)}</p>
          </li>
        ))}
      </ol>
    </>
  )
}

export function Overview({ context }: { context: Context }) {
  const loaded = useLoad(signal => loadStatus(context, signal), [], 15_000)
  return (
    <Page
      title={t('overview.title')}
      intro={t('overview.intro', { database: context.server.database ?? '' })}
      actions={
        loaded.value?.tasks.length !== 0 && (
          <a class="button primary" href="#/preview">
            {t('overview.what')}
          </a>
        )
      }
    >
      <Show loaded={loaded}>
        {status => {
          const last = status.runs.find(run => ended(run) && !isRestore(run)),
            active = status.runs.find(run => !ended(run)),
            unused = !last && !active && !status.schedule.enabled
          return (
            <>
              <Attention status={status} />
              {(unused || status.tasks.length === 0) && <Welcome context={context} tasks={status.tasks} />}
              {!unused && <Summary status={status} last={last} active={active} />}
            </>
          )
        }}
      </Show>
    </Page>
  )
}

/** Shows the active run, the last one, the next one and the chart of recent runs. */
function Summary({ status, last, active }: { status: Status; last?: Run; active?: Run }) {
  const runs = useLoad(loadRuns, [last?.id])
  return (
    <>
      <div class="cards">
        {active && (
          <div class="card">
            <h2>{t('overview.active')}</h2>
            <p class="big">
              <a href={`#/runs/${active.id}`}>
                {t(isRestore(active) ? 'rows.restored' : 'rows', { n: number(total(active)) })}
              </a>
            </p>
            <p>
              <Badge state={stateOf(active)} />
            </p>
          </div>
        )}
        <div class="card">
          <h2>{t('overview.last')}</h2>
          {last ? (
            <>
              <p class="big">
                <a href={`#/runs/${last.id}`}>
                  <Moment at={last.createTime} ago />
                </a>
              </p>
              <p>
                <Badge state={last.state} /> {period(durationOf(last))}
              </p>
            </>
          ) : (
            <p>{t('overview.never')}</p>
          )}
        </div>
        <div class="card">
          <h2>{t('rows.title')}</h2>
          <p class="big">{last ? number(total(last)) : '–'}</p>
          <p class="quiet">{t('overview.inlast')}</p>
        </div>
        <div class="card">
          <h2>{t('overview.next')}</h2>
          <p class="big">
            {status.schedule.nextRunTime ? <Moment at={status.schedule.nextRunTime} ago /> : t('overview.none')}
          </p>
          <p class="quiet">{status.schedule.nextRunTime && <Moment at={status.schedule.nextRunTime} />}</p>
        </div>
      </div>
      <Section title={t('overview.nights')}>
        <Show loaded={runs}>{runs => <Nights runs={runs} />}</Show>
      </Section>
    </>
  )
}

/** Draws the last 30 days. */
function Nights({ runs }: { runs: Run[] }) {
  const { stacks, largest, others } = chart(runs)
  return (
    <>
      <Bars label={t('overview.nights')} stacks={stacks} show={short} />
      <ul class="legend">
        {[...largest, ...(others ? [t('overview.others')] : [])].map((task, i) => (
          <li key={task}>
            <svg viewBox="0 0 10 10" aria-hidden="true">
              <rect class={`part${others && i === largest.length ? 5 : i}`} width="10" height="10" rx="2" />
            </svg>
            {task}
          </li>
        ))}
        <li>
          <svg viewBox="0 0 10 10" aria-hidden="true">
            <path d="M0 5h10" stroke="var(--warn)" stroke-width="2" />
          </svg>
          {t('duration')}
        </li>
      </ul>
    </>
  )
}
