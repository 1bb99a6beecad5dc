// The list of runs, with filters.
import { useState } from 'preact/hooks'
import { call, query, type Run, type Task } from '../api'
import { Badge, Field, Moment, Page, PagedList, Table, useLoad } from '../components'
import { number, period, t, type Key } from '../i18n'
import { durationOf, isRestore, stateOf, total } from '../runs'

const states = ['QUEUED', 'RUNNING', 'PAUSED', 'SUCCEEDED', 'FAILED', 'CANCELLED']

const kindOf = (run: Run) => (run.dryRun ? 'dry' : isRestore(run) ? 'restore' : run.plan ? 'plan' : 'real')

export function History() {
  const [filter, setFilter] = useState({ state: '', task: '', dryRun: '', createdFromTime: '' })
  const tasks = useLoad(signal => call<{ tasks: Task[] }>('GET', '/v1/tasks', undefined, signal), [])
  const load = async (pageToken?: string, signal?: AbortSignal) => {
    const createdFromTime = filter.createdFromTime && new Date(filter.createdFromTime + 'T00:00').toISOString()
    const { runs, nextPageToken } = await call<{ runs: Run[]; nextPageToken: string }>(
      'GET',
      query('/v1/runs', { ...filter, createdFromTime, pageToken }),
      undefined,
      signal,
    )
    return { rows: runs, next: nextPageToken }
  }
  const change = (name: keyof typeof filter) => (event: { currentTarget: { value: string } }) =>
    setFilter({ ...filter, [name]: event.currentTarget.value })
  return (
    <Page title={t('history.title')} intro={t('history.intro')}>
      <form class="row" onSubmit={event => event.preventDefault()}>
        <Field label={t('history.state')}>
          <select value={filter.state} onChange={change('state')}>
            <option value="">{t('history.any')}</option>
            {states.map(s => (
              <option key={s} value={`RUN_STATE_${s}`}>
                {t(`state.${s}` as Key)}
              </option>
            ))}
          </select>
        </Field>
        <Field label={t('history.kind')}>
          <select value={filter.dryRun} onChange={change('dryRun')}>
            <option value="">{t('history.any')}</option>
            <option value="false">{t('history.real')}</option>
            <option value="true">{t('history.dry')}</option>
          </select>
        </Field>
        <Field label={t('history.task')}>
          <select value={filter.task} onChange={change('task')}>
            <option value="">{t('history.any')}</option>
            {tasks.value?.tasks.map(task => (
              <option key={task.name} lang="en">
                {task.name}
              </option>
            ))}
          </select>
        </Field>
        <Field label={t('history.from')}>
          <input type="date" value={filter.createdFromTime} onChange={change('createdFromTime')} />
        </Field>
      </form>
      <PagedList load={load} dependencies={[filter]}>
        {runs => (
          <Table
            label={t('history.title')}
            rows={runs}
            keyOf={run => run.id!}
            empty={t('history.empty')}
            columns={[
              {
                title: t('history.when'),
                cell: run => (
                  <a href={`#/runs/${run.id}`}>
                    <Moment at={run.createTime} />
                  </a>
                ),
              },
              { title: t('history.state'), cell: run => <Badge state={stateOf(run)} /> },
              {
                title: t('history.kind'),
                cell: run => t(`history.${kindOf(run)}`),
              },
              { title: t('history.by'), cell: run => <span lang="en">{run.requestedBy}</span> },
              {
                title: t('duration'),
                numeric: true,
                cell: run => (run.startTime && run.endTime ? period(durationOf(run)) : '–'),
              },
              {
                title: t('rows.title'),
                numeric: true,
                cell: run => {
                  const n = number(total(run))
                  return run.dryRun ? t('history.would', { n }) : isRestore(run) ? t('history.restored', { n }) : n
                },
              },
            ]}
          />
        )}
      </PagedList>
    </Page>
  )
}
