// Who did what?
import { useState } from 'preact/hooks'
import { call, query, type AuditEntry } from '../api'
import { Code, Moment, Page, Problem, Show, Table, useAction, useLoad } from '../components'
import { t } from '../i18n'

type Answer = { entries: AuditEntry[]; nextPageToken: string }
const page = (pageToken?: string, signal?: AbortSignal) => call<Answer>('GET', query('/v1/audit', { pageSize: 100, pageToken }), undefined, signal)

export function Audit() {
  const first = useLoad(signal => page(undefined, signal), [])
  const [more, add] = useState<Answer>({ entries: [], nextPageToken: '' })
  const { busy, problem, act } = useAction()
  return (
    <Page title={t('audit.title')} intro={t('audit.intro')}>
      <Show of={first}>{answer => {
        const next = more.entries.length > 0 ? more.nextPageToken : answer.nextPageToken
        return (
          <>
            <Table label={t('audit.title')} rows={[...answer.entries, ...more.entries]} keyOf={e => e.id!} empty={t('audit.empty')} columns={[
              { title: t('history.when'), cell: e => <Moment at={e.time} /> },
              { title: t('audit.who'), cell: e => <>{e.subject || '–'}<div class="quiet" lang="en">{e.role} {e.by} {e.address}</div></> },
              { title: t('audit.what'), cell: e => <span lang="en">{e.rpc}{e.details && Object.keys(e.details).length > 0 && <details><summary lang={undefined}>{t('audit.details')}</summary><pre>{JSON.stringify(e.details, null, 1)}</pre></details>}</span> },
              { title: t('audit.result'), cell: e => <Code>{e.result}</Code> },
            ]} />
            <Problem of={problem} />
            {next && <p><button type="button" disabled={busy} onClick={() => act(async () => {
              const { entries, nextPageToken } = await page(next)
              add({ entries: [...more.entries, ...entries], nextPageToken })
            })}>{t('action.more')}</button></p>}
          </>
        )
      }}</Show>
    </Page>
  )
}
