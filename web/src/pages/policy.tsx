// The form of a policy, new or stored, which is also shown as YAML.
import { useState } from 'preact/hooks'
import { call, query, violationAt, withoutFields, type DatabaseTable, type Policy } from '../api'
import { Field, isStale, Page, Said, SaveProblem, Show, useAction, useInvalid, useLoad } from '../components'
import type { Context } from '../context'
import { start } from '../follow'
import { t } from '../i18n'
import { secondsOf } from '../runs'
import { draftOf, hasRows, moveTo, othersOf, parseDraft, policyFor, ruleOf, tableOf } from '../policies'
import { undoOf, UndoField } from './undo'

export const pathOf = ({ name }: Policy) => `/v1/policies/${encodeURIComponent(name!)}`

/** Starts a dry run of a policy, and goes to it. */
export async function preview({ name }: Policy) {
  location.hash = `#/runs/${await start({ dryRun: true, tasks: [`policy/${name}`] })}`
}

/** Loads the tables that policies can be for, each with a suggestion if there is one. */
async function loadTables(signal: AbortSignal) {
  const tables: DatabaseTable[] = []
  for (let pageToken: string | undefined = ''; pageToken !== undefined;) {
    const page: { tables: DatabaseTable[]; nextPageToken?: string } = await call(
      'GET',
      query('/v1/tables', { suggestAll: true, pageToken }),
      undefined,
      signal,
    )
    tables.push(...page.tables.filter(hasRows))
    pageToken = page.nextPageToken || undefined
  }
  return tables
}

/** Shows the policy of a name; with an empty one a new policy of a table. */
export function PolicyPage({ context, argument: [name = '', table = ''] }: { context: Context; argument: string[] }) {
  const loaded = useLoad(async signal => {
    const [tables, { policies }] = await Promise.all([
      loadTables(signal),
      call<{ policies: Policy[] }>('GET', '/v1/policies', undefined, signal),
    ])
    const policy = name
      ? (await call<{ policy: Policy }>('GET', pathOf({ name }), undefined, signal)).policy
      : policyFor(tables.find(found => found.name === table))
    return { tables, policy, names: policies.map(p => p.name) }
  }, [])
  return (
    <Page title={name ? t('policies.change', { name }) : t('policies.create')}>
      <Show loaded={loaded}>
        {value => <Form key={value.policy.etag} {...value} context={context} reload={loaded.reload} />}
      </Show>
    </Page>
  )
}

/** The fields that show themselves what the server says about them. */
const fields = [
  'table',
  'olderThan',
  'olderThan.column',
  'olderThan.days',
  'olderThan.hours',
  'limit',
  'undo',
  'description',
]

type Props = {
  policy: Policy
  tables: DatabaseTable[]
  names: (string | undefined)[]
  context: Context
  reload: () => void
}

function Form({ policy, tables, names, context, reload }: Props) {
  const [draft, setDraft] = useState(policy)
  const [yaml, setYAML] = useState<string>()
  const [answer, setAnswer] = useState<{ policy: Policy; stored: boolean }>()
  const { busy, problem, act } = useAction()
  const form = useInvalid(problem)
  const taken = !draft.etag && names.includes(draft.name)
  const edit = (changed: Policy) => {
    setDraft(changed)
    setAnswer(undefined)
  }
  const send = (validateOnly: boolean) =>
    act(async () => {
      setAnswer(undefined)
      const rule = yaml === undefined ? ruleOf(draft) : parseDraft(yaml)
      const { policy } = await call<{ policy: Policy }>(
        'PUT',
        query(pathOf(draft), { validateOnly: validateOnly || undefined }),
        { ...rule, name: draft.name, etag: draft.etag },
      )
      setAnswer({ policy, stored: !validateOnly })
      if (validateOnly) return
      setDraft(policy)
      if (yaml !== undefined) setYAML(draftOf(ruleOf(policy)))
      history.replaceState(null, '', `#/policies/${policy.name}`) // the form stays, with the answer
    })
  const shown = ['name', ...(yaml === undefined ? fields : [])]
  return (
    <form
      ref={form}
      onSubmit={event => {
        event.preventDefault()
        send(false)
      }}
    >
      <label class="check">
        <input
          type="checkbox"
          checked={yaml !== undefined}
          onChange={e => {
            const asYAML = e.currentTarget.checked
            act(async () => {
              if (yaml !== undefined) setDraft({ ...parseDraft(yaml), name: draft.name, etag: draft.etag })
              setYAML(asYAML ? draftOf(ruleOf(draft)) : undefined)
            })
          }}
        />
        {t('policies.yaml')}
      </label>
      {yaml === undefined && (
        <Fields draft={draft} tables={tables} usual={secondsOf(context.server.undo)} problem={problem} edit={edit} />
      )}
      <Field
        label={t('policies.name')}
        help={t(taken ? 'policies.taken' : 'purges.name.help')}
        problem={violationAt(problem, 'name')}
      >
        <input
          required
          aria-invalid={taken || violationAt(problem, 'name') !== undefined}
          pattern="[a-z0-9\-]{1,40}"
          spellcheck={false}
          value={draft.name ?? ''}
          readOnly={Boolean(draft.etag)}
          onInput={e => edit({ ...draft, name: e.currentTarget.value })}
        />
      </Field>
      {yaml !== undefined && (
        <Field label={t('policies.rule')} help={t('policies.rule.help')}>
          <textarea
            class="code"
            rows={14}
            spellcheck={false}
            value={yaml}
            onInput={e => {
              setYAML(e.currentTarget.value)
              setAnswer(undefined)
            }}
          />
        </Field>
      )}
      <SaveProblem error={withoutFields(problem, shown)} reload={reload} />
      {answer && (
        <div class="notice good" role="status">
          <p>{t(answer.stored ? 'policies.saved' : 'policies.checked')}</p>
          {(answer.policy.warnings ?? []).map(w => (
            <p key={w.code}>
              <Said message={w} />
            </p>
          ))}
        </div>
      )}
      <span class="actions">
        <button type="button" aria-disabled={busy} disabled={taken} onClick={() => send(true)}>
          {t('policies.check')}
        </button>
        <button type="submit" class="primary" aria-disabled={busy} disabled={taken || isStale(problem)}>
          {t('policies.save')}
        </button>
        {answer?.stored && (
          <button type="button" aria-disabled={busy} onClick={() => act(() => preview(draft))}>
            {t('purges.preview')}
          </button>
        )}
        <a href="#/policies">{t('policies.title')}</a>
      </span>
    </form>
  )
}

type FieldsProps = {
  draft: Policy
  tables: DatabaseTable[]
  /** The seconds of undo of a policy without any. */
  usual: number
  problem: unknown
  edit: (changed: Policy) => void
}

/** The fields of a policy. Its other parts are shown as they are. */
function Fields({ draft, tables, usual, problem, edit }: FieldsProps) {
  const table = tableOf(tables, draft)
  const { column = '', ...age } = draft.olderThan ?? { days: 365 }
  const unit = 'hours' in age ? 'hours' : 'days'
  const columns = (table?.dateColumns ?? []).map(c => c.column!)
  const others = othersOf(draft)
  const about = (field: string) => violationAt(problem, field)
  const aboutAge = about('olderThan') ?? about(`olderThan.${unit}`)
  return (
    <>
      <Field label={t('table')} problem={about('table')}>
        <select
          required
          aria-invalid={about('table') !== undefined}
          value={table?.name ?? draft.table}
          onChange={e =>
            edit(
              moveTo(
                tables.find(({ name }) => name === e.currentTarget.value)!,
                draft,
              ),
            )
          }
        >
          {!table && <option value={draft.table}>{draft.table}</option>}
          {tables.map(({ name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </Field>
      <Field label={t('purges.column')} help={t('policies.column.help')} problem={about('olderThan.column')}>
        <select
          aria-invalid={about('olderThan.column') !== undefined}
          value={column}
          onChange={e => {
            const column = e.currentTarget.value
            edit({ ...draft, olderThan: column ? { ...age, column } : undefined })
          }}
        >
          <option value="">–</option>
          {[...new Set([...columns, column].filter(Boolean))].map(name => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </Field>
      {column && (
        <div class="row">
          <Field label={t('purges.older')} problem={aboutAge}>
            <input
              type="number"
              required
              min={0}
              aria-invalid={aboutAge !== undefined}
              value={age[unit] ?? ''}
              onInput={e => {
                const n = e.currentTarget.value
                edit({ ...draft, olderThan: { column, [unit]: n === '' ? undefined : Number(n) } })
              }}
            />
          </Field>
          <Field label={t('policies.unit')}>
            <select
              value={unit}
              onChange={e => edit({ ...draft, olderThan: { column, [e.currentTarget.value]: age[unit] } })}
            >
              <option value="days">{t('days')}</option>
              <option value="hours">{t('policies.hours')}</option>
            </select>
          </Field>
        </div>
      )}
      {Object.keys(others).length > 0 && (
        <>
          <p>{t('policies.others')}</p>
          <pre lang="en">{draftOf(others)}</pre>
        </>
      )}
      <Field label={t('policies.description')} problem={about('description')}>
        <input
          aria-invalid={about('description') !== undefined}
          value={draft.description ?? ''}
          onInput={e => edit({ ...draft, description: e.currentTarget.value })}
        />
      </Field>
      <Field label={t('policies.limit')} help={t('policies.limit.help')} problem={about('limit')}>
        <input
          type="number"
          min={0}
          aria-invalid={about('limit') !== undefined}
          value={draft.limit || ''}
          onInput={e => edit({ ...draft, limit: Number(e.currentTarget.value) })}
        />
      </Field>
      {(draft.assign ?? []).length === 0 && (
        <UndoField
          hours={draft.undo ? String(secondsOf(draft.undo) / 3600) : ''}
          usual={usual}
          policies={false}
          problem={about('undo')}
          onChange={hours => edit({ ...draft, undo: undoOf(hours) })}
        />
      )}
      <label class="check">
        <input
          type="checkbox"
          checked={draft.enabled === true}
          onChange={e => edit({ ...draft, enabled: e.currentTarget.checked })}
        />
        {t('purges.on')}
      </label>
    </>
  )
}
