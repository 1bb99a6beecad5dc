// The result of a dry run: its totals, and its tasks with their rules and tables.
import { call, type Run, type TablePreview, type Task } from '../api'
import { Bar, Code, Moment, Section, Table, useLoad } from '../components'
import { bytes, number, t } from '../i18n'
import type { Context } from '../context'
import { drops, keyOfGuard, tasksOf, type TaskPreview } from '../preview'
import { nameOf } from '../runs'
import { Approve } from './approve'
import { tripOf } from '../trips'

export function DryRunResult({ run, context }: { run: Run; context: Context }) {
  const tasks = tasksOf(run)
  const descriptions = useLoad(signal => call<{ tasks: Task[] }>('GET', '/v1/tasks', undefined, signal), [])
  const guards = [...new Map((run.trippedGuards ?? []).map(g => [keyOfGuard(g), g])).values()]
  const sum = (value: (task: TaskPreview) => number) => tasks.reduce((n, task) => n + value(task), 0)
  const total = {
    deleted: sum(task => task.deleted),
    cascaded: sum(task => task.cascaded),
    updated: sum(task => task.updated),
    dropped: sum(task => task.dropped),
    partitions: sum(task => task.partitions),
  }
  return (
    <>
      <div class="sticky top">
        <p>
          {effectsOf(total).join(', ') || t('preview.deleted', { n: number(0) })} · {bytes(sum(task => task.bytes))}
          {Number(run.trashBytes) > 0 && ` ${t('preview.trash', { size: bytes(run.trashBytes) })}`}
        </p>
        {run.state === 'RUN_STATE_SUCCEEDED' && !run.whatIf && tasks.length > 0 && (
          <Approve
            run={run}
            context={context}
            guards={guards}
            rows={number(total.deleted + total.cascaded + total.updated)}
            tables={number(total.dropped)}
          />
        )}
      </div>
      {guards.length > 0 && (
        <div class="notice">
          <p>
            {t('preview.guarded')}
            {!context.may('ADMIN') && ` ${t('preview.admin')}`}
          </p>
        </div>
      )}
      <Section title={t('preview.result')}>
        {tasks.length === 0 && <p class="empty">{t('preview.nothing')}</p>}
        {tasks.map(task => (
          <TaskDetails
            key={task.task}
            task={task}
            open={tasks.length === 1}
            description={descriptions.value?.tasks.find(({ name }) => name === task.task)?.description}
          />
        ))}
      </Section>
    </>
  )
}

type Effects = Pick<TaskPreview, 'deleted' | 'cascaded' | 'updated' | 'dropped' | 'partitions'>

/** Returns the numbers that are not 0, in words. */
const effectsOf = ({ deleted, cascaded, updated, dropped, partitions }: Effects) =>
  [
    deleted > 0 && t('preview.deleted', { n: number(deleted) }),
    cascaded > 0 && t('preview.cascaded', { n: number(cascaded) }),
    updated > 0 && t('preview.updated', { n: number(updated) }),
    dropped > 0 && t('preview.dropped', { n: number(dropped) }),
    partitions > 0 && t('preview.partitions', { n: number(partitions) }),
  ].filter(text => text !== false)

/** Shows what a task would do, and its rules and tables when it is opened. */
function TaskDetails({ task, open, description }: { task: TaskPreview; open: boolean; description?: string }) {
  const { tables } = task
  return (
    <details class="task" open={open}>
      <summary>
        <span>
          <strong lang="en">{task.task}</strong>
          <span class="quiet" lang="en">
            {description}
          </span>
          {task.guards.length > 0 && (
            <span class="badge bad">{t('preview.refuses', { n: number(task.guards.length) })}</span>
          )}
        </span>
        <span class="figures">
          {effectsOf(task).map(text => (
            <span key={text}>{text}</span>
          ))}
          <span class="quiet">
            {[tables > 0 && t('preview.tables', { n: number(tables) }), task.bytes > 0 && bytes(task.bytes)]
              .filter(Boolean)
              .join(' · ')}
          </span>
        </span>
      </summary>
      {task.guards.map(g => (
        <p key={keyOfGuard(g)} class="bad">
          <span class="badge bad" lang="en">
            {nameOf(g.guard)}
          </span>{' '}
          <Code>{g.table}</Code>: {tripOf(g)}
        </p>
      ))}
      {task.rules.map(({ alternatives, tables }, i) => (
        <div key={i}>
          <ul class="rule" lang="en">
            {alternatives.map((text, at) => (
              <li key={text}>
                {at > 0 && 'or '}
                {text}
              </li>
            ))}
          </ul>
          <Tables label={`${task.task} ${i + 1}`} tables={tables} />
        </div>
      ))}
    </details>
  )
}

const actions = {
  PREVIEW_ACTION_UNSPECIFIED: '',
  PREVIEW_ACTION_DELETE: 'preview.delete',
  PREVIEW_ACTION_UPDATE: 'preview.update',
  PREVIEW_ACTION_DETACH: 'preview.detach',
  PREVIEW_ACTION_DROP: 'preview.drop',
} as const

function Tables({ label, tables }: { label: string; tables: (TablePreview & { about: string })[] }) {
  const whatIf = tables.some(p => p.baselineRows !== undefined && p.baselineRows !== null)
  const mark = (p: TablePreview) => ((p.remarks ?? []).some(text => text.startsWith('an estimate')) ? '~' : '')
  const action = (p: TablePreview) => actions[p.action ?? 'PREVIEW_ACTION_UNSPECIFIED']
  return (
    <Table
      label={label}
      rows={tables}
      keyOf={p => `${p.action} ${p.table}`}
      columns={[
        {
          title: t('table'),
          cell: p => (
            <>
              <Code>{p.table}</Code>
              {[p.about, ...(p.remarks ?? [])].filter(Boolean).map(text => (
                <div key={text} class="quiet" lang="en">
                  {text}
                </div>
              ))}
              {(p.noUndo ?? []).map(why => (
                <div key={why} class="quiet">
                  {t('preview.noundo')} <span lang="en">{why}</span>
                </div>
              ))}
              {(p.names ?? []).length > 0 && (
                <div class="quiet">
                  <Code>{p.names!.join(', ')}</Code>
                </div>
              )}
            </>
          ),
        },
        { title: t('preview.action'), cell: p => action(p) && t(action(p) as 'preview.drop') },
        { title: t('preview.amount'), numeric: true, cell: p => mark(p) + number(drops(p) ? p.tables : p.rows) },
        ...(whatIf
          ? [
              {
                title: t('preview.now'),
                numeric: true,
                cell: (p: TablePreview) => mark(p) + number(p.baselineRows ?? undefined),
              },
            ]
          : []),
        {
          title: t('preview.share'),
          cell: p =>
            Number(p.rowsTotal) > 0 && (
              <Bar share={Number(p.rows) / Number(p.rowsTotal)} label={`${t('preview.share')} ${p.table}`} />
            ),
        },
        ...(tables.some(p => p.oldestTime)
          ? [
              {
                title: t('preview.age'),
                cell: (p: TablePreview) =>
                  p.oldestTime && (
                    <span>
                      <Moment at={p.oldestTime} dayOnly />, <Moment at={p.newestTime} dayOnly />
                    </span>
                  ),
              },
            ]
          : []),
        {
          title: t('preview.sample'),
          cell: p => (
            <span>
              {(p.sample ?? []).map((id, i) => (
                <span key={id}>
                  {i > 0 && ', '}
                  <a href={`#/explain/${encodeURIComponent(p.table ?? '')}/${id}`}>{id}</a>
                </span>
              ))}
            </span>
          ),
        },
        { title: t('preview.size'), numeric: true, cell: p => (Number(p.bytes) > 0 ? bytes(p.bytes) : '') },
      ]}
    />
  )
}
