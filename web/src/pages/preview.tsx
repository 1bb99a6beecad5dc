// Starts a preview or a run, and lists recent previews.
import { useState } from 'preact/hooks'
import { call, query, type Run, type Task } from '../api'
import { Badge, Confirm, Moment, Page, Problem, Section, Show, Table, useAction, useLoad } from '../components'
import { number, t } from '../i18n'
import type { Context } from '../context'
import { secondsOf, stateOf, total } from '../runs'
import { Target } from './approve'
import { PaceSelect } from './pace'
import { undoOf, UndoField } from './undo'
import { start } from '../follow'

export function Preview({ context }: { context: Context }) {
  const tasks = useLoad(
    signal =>
      call<{ tasks: Task[] }>('GET', '/v1/tasks', undefined, signal).then(({ tasks }) => ({
        tasks: tasks.filter(task => !task.disabled),
      })),
    [],
  )
  const runs = useLoad(
    signal => call<{ runs: Run[] }>('GET', query('/v1/runs', { dryRun: true, pageSize: 10 }), undefined, signal),
    [],
    5000,
  )
  const [skipped, setSkipped] = useState<string[]>([])
  const [confirming, setConfirming] = useState(false)
  const [pace, setPace] = useState('')
  const [undo, setUndo] = useState('')
  const { busy, problem, act } = useAction()
  const startRun = (dryRun: boolean) =>
    act(async () => {
      location.hash = `#/runs/${await start({
        dryRun,
        skipTasks: skipped,
        continueOnError: true,
        ...(!dryRun && { pace: pace || undefined, undo: undoOf(undo) }),
      })}`
    })
  return (
    <Page title={t('preview.title')} intro={t('preview.intro')}>
      <Problem error={confirming ? undefined : problem} />
      <Show loaded={tasks}>
        {({ tasks }) =>
          tasks.length === 0 ? (
            <p class="empty">
              {t('overview.notasks')} <a href="#/policies">{t('policies.title')}</a>
            </p>
          ) : (
            <>
              <div class="actions">
                <button
                  type="button"
                  class="primary"
                  aria-disabled={busy}
                  disabled={skipped.length === tasks.length}
                  onClick={() => startRun(true)}
                >
                  {t('preview.start')}
                </button>
                {context.may('OPERATOR') && (
                  <button type="button" disabled={skipped.length === tasks.length} onClick={() => setConfirming(true)}>
                    {t('preview.blind')}
                  </button>
                )}
                {confirming && (
                  <Confirm
                    title={t('preview.unseen')}
                    action={t('preview.yes')}
                    busy={busy}
                    problem={problem}
                    onConfirm={() => startRun(false)}
                    onClose={() => setConfirming(false)}
                  >
                    <Target context={context} />
                    <PaceSelect value={pace} unset={t('pace.server')} onChange={setPace} />
                    <UndoField
                      hours={undo}
                      usual={secondsOf(context.server.undo)}
                      policies={undo === ''}
                      onChange={setUndo}
                    />
                  </Confirm>
                )}
              </div>
              <Section
                title={t('preview.tasks')}
                actions={
                  <button
                    type="button"
                    onClick={() => setSkipped(skipped.length > 0 ? [] : tasks.map(task => task.name!))}
                  >
                    {skipped.length > 0 ? t('preview.all') : t('preview.none')}
                  </button>
                }
              >
                <Table
                  label={t('preview.tasks')}
                  rows={tasks}
                  keyOf={task => task.name!}
                  columns={[
                    {
                      title: t('run.task'),
                      cell: task => (
                        <label class="check" lang="en">
                          <input
                            type="checkbox"
                            checked={!skipped.includes(task.name!)}
                            onChange={e =>
                              setSkipped(
                                e.currentTarget.checked
                                  ? skipped.filter(n => n !== task.name)
                                  : [...skipped, task.name!],
                              )
                            }
                          />
                          {task.name}
                        </label>
                      ),
                    },
                    { title: t('preview.what'), cell: task => <span lang="en">{task.description}</span> },
                  ]}
                />
              </Section>
            </>
          )
        }
      </Show>
      <Section title={t('preview.recent')}>
        <Show loaded={runs}>
          {({ runs }) => (
            <Table
              label={t('preview.recent')}
              rows={runs}
              keyOf={run => run.id!}
              empty={t('preview.norecent')}
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
                { title: t('history.by'), cell: run => <span lang="en">{run.requestedBy}</span> },
                { title: t('preview.would'), numeric: true, cell: run => number(total(run)) },
              ]}
            />
          )}
        </Show>
      </Section>
    </Page>
  )
}
