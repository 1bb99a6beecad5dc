// Retention rules for tables that the tasks of the application do not know.
import { useState } from 'preact/hooks'
import { call, query, type Policy } from '../api'
import {
  Code,
  Confirm,
  Field,
  isStale,
  Page,
  Problem,
  Said,
  SaveProblem,
  Section,
  Show,
  Table,
  useAction,
  useLoad,
} from '../components'
import type { Context } from '../context'
import { t } from '../i18n'
import { start } from '../follow'
import { conditionsOf, draftOf, parseDraft } from '../policies'

const pathOf = (policy: Policy) => `/v1/policies/${encodeURIComponent(policy.name!)}`

export function Policies({ context }: { context: Context }) {
  const loaded = useLoad(signal => call<{ policies: Policy[] }>('GET', '/v1/policies', undefined, signal), [])
  const [removing, setRemoving] = useState<Policy>()
  const [editing, setEditing] = useState<Policy>()
  const { busy, problem, act } = useAction()
  const admin = context.may('ADMIN')
  const change = (policy: Policy, enabled: boolean) =>
    act(async () => {
      await call('PATCH', pathOf(policy), { enabled, etag: policy.etag })
      loaded.reload()
    })
  const preview = (policy: Policy) =>
    act(async () => {
      location.hash = `#/runs/${await start({ dryRun: true, tasks: [`policy/${policy.name}`] })}`
    })
  const confirming = removing && !isStale(problem)
  return (
    <Page title={t('policies.title')} intro={t('policies.intro')}>
      {!confirming && (
        <SaveProblem
          error={problem}
          reload={() => {
            setRemoving(undefined)
            act(async () => loaded.reload())
          }}
        />
      )}
      <Show loaded={loaded}>
        {({ policies }) => (
          <Table
            label={t('policies.title')}
            rows={policies}
            keyOf={p => p.name!}
            empty={t('policies.none')}
            columns={[
              { title: t('run.task'), cell: p => <Code>policy/{p.name}</Code> },
              { title: t('holds.table'), cell: p => <Code>{p.table}</Code> },
              {
                title: t('policies.rows'),
                cell: p => (
                  <>
                    {p.description && <p>{p.description}</p>}
                    {conditionsOf(p).map(c => (
                      <div key={c}>
                        <Code>{c}</Code>
                      </div>
                    ))}
                  </>
                ),
              },
              {
                title: t('policies.then'),
                cell: p =>
                  p.assign?.length ? (
                    p.assign.map(a => (
                      <div key={a.column}>
                        <Code>
                          {a.column} = {a.value ?? 'NULL'}
                        </Code>
                      </div>
                    ))
                  ) : (
                    <>{t('policies.delete')}</>
                  ),
              },
              {
                title: t('purges.on'),
                cell: p => (
                  <label class="check">
                    <input
                      type="checkbox"
                      aria-label={`${t('purges.on')}: ${p.name}`}
                      checked={p.enabled}
                      disabled={!admin}
                      onChange={e => change(p, e.currentTarget.checked)}
                    />
                  </label>
                ),
              },
              {
                title: t('preview.action'),
                cell: p => (
                  <span class="actions">
                    <button type="button" aria-disabled={busy} onClick={() => preview(p)}>
                      {t('purges.preview')}
                    </button>
                    {admin && (
                      <>
                        <button type="button" onClick={() => setEditing(p)}>
                          {t('policies.edit')}
                        </button>
                        <button type="button" onClick={() => act(async () => setRemoving(p))}>
                          {t('userdata.less')}
                        </button>
                      </>
                    )}
                  </span>
                ),
              },
            ]}
          />
        )}
      </Show>
      {confirming && (
        <Confirm
          title={t('policies.remove', { name: removing.name! })}
          action={t('userdata.less')}
          busy={busy}
          problem={problem}
          onClose={() => setRemoving(undefined)}
          onConfirm={() =>
            act(() => call('DELETE', query(pathOf(removing), { etag: removing.etag }))).then(done => {
              if (done) {
                setRemoving(undefined)
                loaded.reload()
              }
            })
          }
        />
      )}
      {admin && <Editor key={editing?.name} policy={editing} done={loaded.reload} />}
    </Page>
  )
}

/** Edits a policy as JSON, in the form of the API. Checking it asks the server what it would store. */
function Editor({ policy, done }: { policy?: Policy; done: () => void }) {
  const [name, setName] = useState(policy?.name ?? '')
  const [draft, setDraft] = useState(draftOf(policy))
  const [checked, setChecked] = useState<Policy>()
  const { busy, problem, act } = useAction()
  const send = (validateOnly: boolean) =>
    act(async () => {
      const body = { ...parseDraft(draft), name, etag: policy?.etag }
      const path = query(pathOf(body), validateOnly ? { validateOnly: 'true' } : {})
      setChecked((await call<{ policy: Policy }>('PUT', path, body)).policy)
      if (!validateOnly) done()
    })
  return (
    <Section title={policy ? t('policies.change', { name: policy.name! }) : t('policies.create')}>
      <form
        onSubmit={event => {
          event.preventDefault()
          send(false)
        }}
      >
        <Field label={t('purges.name')} help={t('purges.name.help')}>
          <input
            required
            pattern="[a-z0-9\-]{1,40}"
            spellcheck={false}
            value={name}
            readOnly={policy !== undefined}
            onInput={e => setName(e.currentTarget.value)}
          />
        </Field>
        <Field label={t('policies.rule')} help={t('policies.rule.help')}>
          <textarea
            class="code"
            rows={14}
            spellcheck={false}
            value={draft}
            onInput={e => {
              setDraft(e.currentTarget.value)
              setChecked(undefined)
            }}
          />
        </Field>
        <Problem error={problem} />
        {checked && (
          <>
            <p>{t('policies.checked')}</p>
            {(checked.warnings ?? []).map(w => (
              <p key={w.code}>
                <Said message={w} />
              </p>
            ))}
          </>
        )}
        <span class="actions">
          <button type="button" aria-disabled={busy} onClick={() => send(true)}>
            {t('policies.check')}
          </button>
          <button type="submit" aria-disabled={busy}>
            {t('policies.save')}
          </button>
        </span>
      </form>
    </Section>
  )
}
