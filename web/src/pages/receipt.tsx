// The receipt of an erasure, and its verification.
import { useState } from 'preact/hooks'
import { call, type Receipt } from '../api'
import { Badge, Code, Field, Moment, Page, Problem, Section, Show, Table, useAction, useLoad } from '../components'
import { number, t } from '../i18n'
import { Variables, type Variable } from './variables'

export const rowsIn = (receipt: Receipt) => (receipt.rows ?? []).reduce((n, r) => n + Number(r.rows), 0)
export const stateOf = (receipt: Receipt) => (!receipt.endTime ? 'RUNNING' : receipt.succeeded ? 'SUCCEEDED' : 'FAILED')

export const Counts = ({ label, receipt }: { label: string; receipt: Receipt }) => (
  <Table
    label={label}
    rows={receipt.rows ?? []}
    keyOf={r => r.table!}
    columns={[
      { title: t('table'), cell: r => <Code>{r.table}</Code> },
      { title: t('rows.title'), numeric: true, cell: r => number(r.rows) },
    ]}
  />
)

const Ids = ({ ids }: { ids?: string[] }) => (ids && ids.length > 0 ? <Code>{ids.join(', ')}</Code> : <>–</>)

export function OneReceipt({ id }: { id: string }) {
  const path = `/v1/userdata/receipts/${encodeURIComponent(id)}`
  const loaded = useLoad(signal => call<{ receipt: Receipt }>('GET', path, undefined, signal), [id])
  return (
    <Page title={t('userdata.receipt')}>
      <Show loaded={loaded}>
        {({ receipt }) => (
          <>
            <dl>
              <dt>ID</dt>
              <dd>
                <Code>{receipt.id}</Code>
              </dd>
              <dt>{t('history.kind')}</dt>
              <dd>{receipt.sweep ? t('userdata.sweep') : t('userdata.erasure')}</dd>
              <dt>{t('history.state')}</dt>
              <dd>
                <Badge state={stateOf(receipt)} />
              </dd>
              <dt>{t('history.when')}</dt>
              <dd>
                <Moment at={receipt.createTime} /> – <Moment at={receipt.endTime} />
              </dd>
              <dt>{t('audit.who')}</dt>
              <dd>{receipt.requestedBy || '–'}</dd>
              <dt>{t('userdata.hash')}</dt>
              <dd>
                <Code>{receipt.userIdHash || '–'}</Code>
              </dd>
              <dt>{t('userdata.instances')}</dt>
              <dd>
                <Ids ids={receipt.processInstanceIds} />
              </dd>
              <dt>{t('userdata.tasks')}</dt>
              <dd>
                <Ids ids={receipt.taskIds} />
              </dd>
              <dt>{t('userdata.files')}</dt>
              <dd>
                {(receipt.files ?? []).length === 0 ? (
                  '–'
                ) : (
                  <details>
                    <summary>{number(receipt.files!.length)}</summary>
                    <Ids ids={receipt.files} />
                  </details>
                )}
              </dd>
            </dl>
            {(receipt.problems ?? []).map(p => (
              <div key={p} class="problem">
                <p lang="en">{p}</p>
              </div>
            ))}
            <Section title={t('userdata.erased')}>
              <Counts label={t('userdata.erased')} receipt={receipt} />
            </Section>
            {!receipt.sweep && receipt.endTime && (
              <Verification
                receipt={receipt}
                verify={body => call('POST', `${path}:verify`, body).then(loaded.reload)}
              />
            )}
          </>
        )}
      </Show>
    </Page>
  )
}

function Verification({ receipt, verify }: { receipt: Receipt; verify: (body: object) => Promise<void> }) {
  const [userId, setUserId] = useState('')
  const [variables, setVariables] = useState<Variable[]>([])
  const { busy, problem, act } = useAction()
  const found = receipt.verification
  const left = [...(found?.processInstanceIds ?? []), ...(found?.taskIds ?? [])]
  return (
    <Section title={t('userdata.verification')}>
      {!found ? (
        <p class="quiet">{t('userdata.unverified')}</p>
      ) : (
        <div class={found.clean ? 'notice good' : 'problem'} role="status">
          <p>
            <Moment at={found.verifyTime} />:{' '}
            {found.clean ? (
              t('userdata.nothing')
            ) : (
              <>
                {t('userdata.left')} <Ids ids={left} />
              </>
            )}
          </p>
        </div>
      )}
      {found && (found.possibleProcessInstanceIds ?? []).length > 0 && (
        <p>
          <span class="badge warn">{t('userdata.part')}</span> <Ids ids={found.possibleProcessInstanceIds} />
        </p>
      )}
      {(found?.notSearched ?? []).map(n => (
        <div key={n} class="problem">
          <p lang="en">{n}</p>
        </div>
      ))}
      <form
        onSubmit={event => {
          event.preventDefault()
          act(() => verify(receipt.userIdHash ? { userId: userId.trim(), variables } : {}))
        }}
      >
        {receipt.userIdHash && (
          <>
            <Field label={t('userdata.id')} help={t('userdata.verify.help')}>
              <input
                required
                autoComplete="off"
                spellcheck={false}
                value={userId}
                onInput={e => setUserId(e.currentTarget.value)}
              />
            </Field>
            <Variables variables={variables} choose={setVariables} />
          </>
        )}
        <Problem error={problem} />
        <button type="submit" aria-disabled={busy}>
          {t('userdata.verify')}
        </button>
      </form>
    </Section>
  )
}
