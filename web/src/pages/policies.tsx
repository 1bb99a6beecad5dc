// The policies, and the page of each of them.
import { useState } from 'preact/hooks'
import { call, query, type Policy } from '../api'
import { Code, Confirm, isStale, Page, SaveProblem, Show, Table, useAction, useLoad } from '../components'
import type { Context } from '../context'
import { t } from '../i18n'
import { conditionsOf } from '../policies'
import { secondsOf } from '../runs'
import { pathOf, PolicyPage, preview } from './policy'
import { effectOf } from './undo'

export function Policies({ context, argument }: { context: Context; argument: string[] }) {
  if (argument.length > 0 && context.may('ADMIN')) return <PolicyPage context={context} argument={argument} />
  return <List context={context} />
}

function List({ context }: { context: Context }) {
  const loaded = useLoad(signal => call<{ policies: Policy[] }>('GET', '/v1/policies', undefined, signal), [])
  const [removing, setRemoving] = useState<Policy>()
  const { busy, problem, act } = useAction()
  const admin = context.may('ADMIN')
  const change = (policy: Policy, enabled: boolean) =>
    act(async () => {
      await call('PATCH', pathOf(policy), { enabled, etag: policy.etag })
      loaded.reload()
    })
  const confirming = removing && !isStale(problem)
  return (
    <Page
      title={t('policies.title')}
      intro={t('policies.intro')}
      actions={
        admin && (
          <a class="button primary" href="#/policies//">
            {t('policies.create')}
          </a>
        )
      }
    >
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
                          {a.column} = {a.valueFromKey || (a.value ?? 'NULL')}
                        </Code>
                      </div>
                    ))
                  ) : (
                    <>
                      <p>{t(p.partitions === 'PARTITIONS_DETACH' ? 'policies.detach' : 'policies.delete')}</p>
                      {p.partitions === 'PARTITIONS_DELETE' && <p>{t('policies.partitions.rows')}</p>}
                      {p.undo && <p>{effectOf(secondsOf(p.undo))}</p>}
                    </>
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
                    <button type="button" aria-disabled={busy} onClick={() => act(() => preview(p))}>
                      {t('purges.preview')}
                    </button>
                    {admin && (
                      <>
                        <a class="button" href={`#/policies/${p.name}`}>
                          {t('policies.edit')}
                        </a>
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
    </Page>
  )
}
