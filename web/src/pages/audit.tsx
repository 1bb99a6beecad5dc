// The audit log.
import { call, query, type AuditEntry } from '../api'
import { Code, Moment, Page, PagedList, Table } from '../components'
import { t } from '../i18n'
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

async function load(pageToken?: string, signal?: AbortSignal) {
  const { entries, nextPageToken } = await call<{ entries: AuditEntry[]; nextPageToken: string }>(
    'GET',
    query('/v1/audit', { pageSize: 100, pageToken }),
    undefined,
    signal,
  )
  return { rows: entries, next: nextPageToken }
}

export function Audit() {
  return (
    <Page title={t('audit.title')} intro={t('audit.intro')}>
      <PagedList load={load} dependencies={[]}>
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
                    {e.subject || '–'}
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
                    {e.rpc}
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
