// The audit log.
import { useState } from 'preact/hooks'
import { call, query, type AuditEntry } from '../api'
import { Code, Field, Moment, Page, PagedList, Table } from '../components'
import { language, t } from '../i18n'
import { nameOf } from '../runs'

/** The status codes of gRPC by their numbers. */
const codes = [
  'OK',
  'CANCELLED',
  'UNKNOWN',
  'INVALID_ARGUMENT',
  'DEADLINE_EXCEEDED',
  'NOT_FOUND',
  'ALREADY_EXISTS',
  'PERMISSION_DENIED',
  'RESOURCE_EXHAUSTED',
  'FAILED_PRECONDITION',
  'ABORTED',
  'OUT_OF_RANGE',
  'UNIMPLEMENTED',
  'INTERNAL',
  'UNAVAILABLE',
  'DATA_LOSS',
  'UNAUTHENTICATED',
]

async function load(filter: string, pageToken?: string, signal?: AbortSignal) {
  const { entries, nextPageToken } = await call<{ entries: AuditEntry[]; nextPageToken: string }>(
    'GET',
    query('/v1/audit', { pageSize: 100, pageToken, filter: filter.trim() }),
    undefined,
    signal,
  )
  return { rows: entries, next: nextPageToken }
}

export function Audit() {
  const [filter, setFilter] = useState('')
  return (
    <Page title={t('audit.title')} intro={t('audit.intro')}>
      <Field label={t('audit.filter')}>
        <input type="search" maxLength={200} value={filter} onChange={e => setFilter(e.currentTarget.value)} />
      </Field>
      <PagedList load={(pageToken, signal) => load(filter, pageToken, signal)} dependencies={[filter]}>
        {entries => (
          <Table
            label={t('audit.title')}
            rows={entries}
            keyOf={e => e.id!}
            empty={t('audit.empty')}
            columns={[
              { title: t('history.when'), cell: e => <Moment at={e.time} /> },
              {
                title: t('audit.who'),
                cell: e => (
                  <>
                    {e.subject || t('about.anonymous')}
                    <div class="quiet" lang="en">
                      {nameOf(e.role)} {nameOf(e.credentialType)} {e.address}
                    </div>
                  </>
                ),
              },
              {
                title: t('audit.what'),
                cell: e => (
                  <span lang="en">
                    {e.rpc}{' '}
                    {e.details?.dry_run === true && (
                      <span class="badge" lang={language}>
                        {t('audit.dry')}
                      </span>
                    )}
                    {e.details && Object.keys(e.details).length > 0 && (
                      <details>
                        <summary lang={undefined}>{t('audit.details')}</summary>
                        <pre>{JSON.stringify(e.details, null, 1)}</pre>
                      </details>
                    )}
                  </span>
                ),
              },
              { title: t('audit.result'), cell: e => <Code>{codes[e.statusCode ?? 0]}</Code> },
            ]}
          />
        )}
      </PagedList>
    </Page>
  )
}
