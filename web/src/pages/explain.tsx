// Explains why a row is deleted or retained, and what a task does.
import { useState } from 'preact/hooks'
import { call, type DatabaseTable, type ExplainedTask, type Explanation, type Task, type TrashedRow } from '../api'
import { Badge, Code, Confirm, Field, Moment, Page, Section, Show, Table, useAction, useLoad } from '../components'
import type { Context } from '../context'
import { start } from '../follow'
import { number, t } from '../i18n'
import { splitRule } from '../preview'
import { Target } from './approve'

/** Returns the columns of VALUE, or of COLUMN=VALUE,COLUMN=VALUE. */
export function keyColumns(text: string) {
  if (!text.includes('=')) return [{ column: '', value: text }]
  const parts = text.split(/,(?=\s*\w+=)/)
  return parts.map(part => ({ column: part.slice(0, part.indexOf('=')), value: part.slice(part.indexOf('=') + 1) }))
}

export function Explain({ context, argument: [table = '', key = ''] }: { context: Context; argument: string[] }) {
  const [draft, setDraft] = useState({ table, key: table && key })
  const tables = useLoad(
    signal => call<{ tables: DatabaseTable[] }>('GET', '/v1/tables?view=TABLE_VIEW_BASIC', undefined, signal),
    [],
  )
  const tasks = useLoad(signal => call<{ tasks: Task[] }>('GET', '/v1/tasks', undefined, signal), [])
  return (
    <Page title={t('explain.title')} intro={t('explain.intro')}>
      <form
        class="row"
        onSubmit={event => {
          event.preventDefault()
          location.hash = `#/explain/${encodeURIComponent(draft.table.trim())}/${encodeURIComponent(draft.key.trim())}`
        }}
      >
        <Field label={t('table')}>
          <input
            required
            spellcheck={false}
            list="tables"
            value={draft.table}
            onInput={e => setDraft({ ...draft, table: e.currentTarget.value })}
          />
        </Field>
        <Field label={t('explain.key')}>
          <input
            required
            spellcheck={false}
            value={draft.key}
            onInput={e => setDraft({ ...draft, key: e.currentTarget.value })}
          />
        </Field>
        <Field label={''}>
          <button type="submit" class="primary">
            {t('explain.go')}
          </button>
        </Field>
      </form>
      <datalist id="tables">
        {tables.value?.tables
          .filter(({ kind, coveredBy }) => kind !== 'TABLE_KIND_WORK_TABLES' && coveredBy!.length > 0)
          .map(({ name, coveredBy }) => (
            <option key={name} value={name!.slice(name!.indexOf('.') + 1)}>
              {coveredBy!.join(', ')}
            </option>
          ))}
      </datalist>
      <Field label={t('explain.task')}>
        <select
          value={table === '' ? key : ''}
          onChange={e => {
            location.hash = `#/explain//${encodeURIComponent(e.currentTarget.value)}`
          }}
        >
          <option value="">–</option>
          {tasks.value?.tasks.map(({ name }) => (
            <option key={name} lang="en">
              {name}
            </option>
          ))}
        </select>
      </Field>
      {table !== '' && <Answer context={context} table={table} keyOf={key} />}
      {table === '' && key !== '' && <TaskAnswer task={key} />}
    </Page>
  )
}

/** Shows what a task would execute now, and what it skips. */
function TaskAnswer({ task }: { task: string }) {
  const loaded = useLoad(signal => call<ExplainedTask>('GET', `/v1/tasks/${task}:explain`, undefined, signal), [task])
  return (
    <Show loaded={loaded}>
      {({ parents, statements, skips }) => (
        <>
          {(skips ?? []).map(text => (
            <p key={text} class="quiet" lang="en">
              {text}
            </p>
          ))}
          {[...(parents ? [parents] : []), ...(statements ?? [])].map((s, i) => (
            <Section key={i} title={s.table ?? ''}>
              <ul class="rule" lang="en">
                {splitRule(s.rule ?? '').alternatives.map(text => (
                  <li key={text}>{text}</li>
                ))}
              </ul>
              <pre lang="en">{s.sql}</pre>
              {(s.parameters ?? []).map((value, at) => (
                <div key={at}>
                  <Code>{`$${at + 1} = ${value}`}</Code>
                </div>
              ))}
            </Section>
          ))}
        </>
      )}
    </Show>
  )
}

function Answer({ context, table, keyOf }: { context: Context; table: string; keyOf: string }) {
  const loaded = useLoad(
    signal => call<Explanation>('POST', '/v1/explain', { table, key: keyColumns(keyOf) }, signal),
    [table, keyOf],
  )
  return (
    <Show loaded={loaded}>
      {e =>
        e.exists ? (
          <>
            <p role="status">
              <Badge state={e.verdict} /> <Code>{e.table}</Code> {keyOf} {e.task && <span lang="en">· {e.task}</span>}{' '}
              {e.deleteAfterTime && (
                <>
                  · {t('explain.since')} <Moment at={e.deleteAfterTime} />
                </>
              )}
            </p>
            {e.why && <p lang="en">{e.why}</p>}
            {(e.steps ?? []).map((step, i) => (
              <Section
                key={i}
                title={step.task ?? ''}
                actions={
                  <>
                    {step.onHold && <Badge state="ON_HOLD" />}
                    <Badge state={step.verdict} />
                  </>
                }
              >
                <p class="quiet" lang="en">
                  {step.rule}
                </p>
                {step.why && <p lang="en">{step.why}</p>}
                <Table
                  label={step.rule ?? ''}
                  rows={step.parts ?? []}
                  keyOf={p => `${p.of} ${p.alternative} ${p.text}`}
                  columns={[
                    { title: t('explain.condition'), cell: p => <Code>{p.text}</Code> },
                    { title: t('explain.truth'), cell: p => <Badge state={p.truth?.replace('TRUTH_', '')} /> },
                    { title: t('explain.values'), cell: p => <Code>{(p.values ?? []).join(', ')}</Code> },
                  ]}
                />
              </Section>
            ))}
          </>
        ) : (
          <>
            <div class="notice">
              <p>
                <Code>{e.table}</Code> {keyOf}: {t('explain.gone')}
              </p>
              {(e.trash ?? []).map(row => (
                <InTrash key={row.runId} row={row} context={context} />
              ))}
            </div>
            <Section title={t('explain.runs')}>
              <Table
                label={t('explain.runs')}
                rows={e.runs ?? []}
                keyOf={r => r.runId!}
                empty={t('explain.noruns')}
                columns={[
                  {
                    title: t('history.when'),
                    cell: r => (
                      <a href={`#/runs/${r.runId}`}>
                        <Moment at={r.startTime} />
                      </a>
                    ),
                  },
                  { title: t('run.task'), cell: r => <span lang="en">{(r.tasks ?? []).join(', ')}</span> },
                  { title: t('run.deleted'), numeric: true, cell: r => number(r.rowsDeleted) },
                ]}
              />
            </Section>
          </>
        )
      }
    </Show>
  )
}

/** Says until when a row is in the trash, and lets administrators bring it back if its key names it. */
function InTrash({ row, context }: { row: TrashedRow; context: Context }) {
  const [asked, setAsked] = useState(false)
  const { busy, problem, act } = useAction()
  const { runId, task, table, key, expireTime } = row
  const restore = () =>
    act(async () => {
      location.hash = `#/runs/${await start({ runId, tables: [table], keys: [key] }, '/v1/trash:restore')}`
    })
  return (
    <p class="actions">
      <span>
        <a href={`#/runs/${runId}`}>{t('trash.title')}</a> · <span lang="en">{task}</span> · {t('trash.until')}{' '}
        {expireTime ? <Moment at={expireTime} /> : t('trash.working')}
      </span>
      {key && context.may('ADMIN') && (
        <button type="button" onClick={() => setAsked(true)}>
          {t('trash.restore')}
        </button>
      )}
      {asked && (
        <Confirm
          title={t('trash.restore')}
          action={t('trash.restore')}
          busy={busy}
          problem={problem}
          onConfirm={restore}
          onClose={() => setAsked(false)}
        >
          <Target context={context} />
          <p>
            <Code>{table}</Code> {key}
          </p>
          <p>{t('trash.restore.help')}</p>
        </Confirm>
      )}
    </p>
  )
}
